"""Work with many delegation tokens, which is done in a thread."""

from functools import partial
from typing import TYPE_CHECKING

from runnel.broker.runtime.blocking import Job
from runnel.controller.tokens import secret_of
from runnel.model.limits import SLICE_ELEMENTS
from runnel.security.principal import Principal
from runnel.security.scram_server import token_hmac

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker


async def derive_hmacs(broker: "Broker", requester: Principal) -> None:
    """Derive those of many tokens that are new, as after the start. Raises ApiError as `secret_of` does."""
    secret = secret_of(broker.settings, requester)
    tokens, ids = broker.metadata.image.tokens, broker.token_ids
    if len(tokens) - len(ids) > SLICE_ELEMENTS:
        unknown = ids.unknown(tokens)
        ids.add(await broker.disk.run_blocking(Job(partial(_hmacs, secret, unknown))))


def _hmacs(secret: str, token_ids: list[str]) -> dict[str, bytes]:
    return {token_id: token_hmac(secret, token_id) for token_id in token_ids}
