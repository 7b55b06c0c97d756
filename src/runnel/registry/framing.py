"""Confluent's framing of keys and values: a zero byte, the id of the schema in four bytes, data.

With Protobuf, data begins with the indexes of the message in its schema (protobuf/records.py).
"""

from runnel.registry.format import InvalidData
from runnel.registry.limits import ID_MAX

MAGIC = b"\x00"
HEADER_BYTES = 5


class NotFramed(InvalidData):
    """Bytes do not begin with the id of a schema."""


def framed(schema_id: int, data: bytes) -> bytes:
    """Data with the id of the schema that it was encoded with."""
    return MAGIC + schema_id.to_bytes(HEADER_BYTES - 1, "big") + data


def unframed(framed_data: bytes) -> tuple[int, bytes]:
    """The id of a schema, and the data. Raises NotFramed."""
    if framed_data[:1] != MAGIC or len(framed_data) < HEADER_BYTES:
        raise NotFramed("it does not begin with a zero byte and the id of a schema")
    schema_id = int.from_bytes(framed_data[1:HEADER_BYTES], "big")
    if not 0 < schema_id <= ID_MAX:
        raise NotFramed(f"it does not begin with the id of a schema: {schema_id} is not one")
    return schema_id, framed_data[HEADER_BYTES:]
