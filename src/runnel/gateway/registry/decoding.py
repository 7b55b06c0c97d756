"""Messages that a schema of the registry was used for, decoded."""

from dataclasses import dataclass

from runnel.client.errors import ClientError
from runnel.gateway.json_text import indented
from runnel.gateway.registry.store import Store
from runnel.registry import lookup
from runnel.registry.checks import Verdicts
from runnel.registry.codecs import codec_of
from runnel.registry.errors import RegistryError
from runnel.registry.format import InvalidData, InvalidSchema
from runnel.registry.framing import NotFramed, unframed
from runnel.registry.state import RegistryState, Version

DATA_BYTES_MAX = 512 * 1024
UNDECODABLE = (RegistryError, ClientError, InvalidSchema, InvalidData, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A message, and the schema it was written with."""

    version: Version
    text: str
    """Indented JSON."""


async def decoded_by_registry(store: Store, value: bytes | None) -> Decoded | None:
    """A framed message decoded; None if it is not framed, or its schema is not known or does not fit."""
    if value is None or len(value) > DATA_BYTES_MAX:
        return None
    try:
        schema_id, data = unframed(value)
    except NotFramed:
        return None

    def find(state: RegistryState, verdicts: Verdicts) -> Decoded:
        version = lookup.by_id(state, schema_id)
        found = codec_of(version.content.type, state.parsed(version)).shown(data)
        return Decoded(version, indented(found))

    try:
        return await store.read(find)
    except UNDECODABLE:
        return None
