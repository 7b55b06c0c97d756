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


def schema_id_at(data: bytes, start: int, size_bytes: int) -> int:
    """The id of the schema of a framed key or value within other data; 0 if it is not framed."""
    if size_bytes < HEADER_BYTES or data[start]:
        return 0
    # An id above the largest one is negative in Java, and none.
    schema_id = int.from_bytes(data[start + 1 : start + HEADER_BYTES], "big")
    return schema_id if schema_id <= ID_MAX else 0


def unframed(framed_data: bytes) -> tuple[int, bytes]:
    """The id of a schema, and the data. Raises NotFramed."""
    if framed_data[:1] != MAGIC or len(framed_data) < HEADER_BYTES:
        raise NotFramed("it does not begin with a zero byte and the id of a schema")
    schema_id = schema_id_at(framed_data, 0, len(framed_data))
    if not schema_id:
        number = int.from_bytes(framed_data[1:HEADER_BYTES], "big")
        raise NotFramed(f"it does not begin with the id of a schema: {number} is none")
    return schema_id, framed_data[HEADER_BYTES:]
