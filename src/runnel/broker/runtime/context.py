"""The context of a request."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runnel.model.limits import RESPONSE_ELEMENTS_MAX
from runnel.ports.service import Session

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker
    from runnel.ports.gates import Authorizer


@dataclass(slots=True)
class Encoded:
    """A response that is already encoded in the version of the request."""

    body: bytes


@dataclass(slots=True, eq=False)
class Context:
    """The broker, the connection, and the header of a request."""

    broker: "Broker"
    session: Session
    api_version: int
    client_id: str | None
    denied_topics: frozenset[str] = field(default=frozenset(), kw_only=True)
    """Topics of a fetch session that the client may no longer read."""
    is_large: bool = field(default=False, kw_only=True)
    """The response may have so many elements that it is encoded in a thread."""
    response_elements: int = field(default=0, kw_only=True)
    """What the response describes so far, over all slices of the request."""
    close_reason: str = field(default="", kw_only=True)
    """Why the connection is closed after the response; empty if it is not."""

    @property
    def is_response_full(self) -> bool:
        return self.response_elements > RESPONSE_ELEMENTS_MAX

    @property
    def client_host(self) -> str:
        return self.session.client_host

    @property
    def listener(self) -> str:
        return self.session.listener

    @property
    def authorizer(self) -> "Authorizer":
        return self.broker.gates.authorizer
