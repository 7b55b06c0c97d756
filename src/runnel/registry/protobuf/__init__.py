"""Protobuf schemas: `.proto` source and descriptors, equality, printing, compatibility, records.

`parser` reads a text into a FileDescriptorProto, `names` resolves the types that it uses (with the
`symbols` of all files), `options` interprets options, `checks` and protobuf's own linker check the result.
`linking` does this for a schema and all that it imports. `canonical` and `layout` define the form that
equal schemas share, and `printer` prints it. `compatibility` compares two schemas, `records` decodes what
was written with one, `encoding` encodes it.
"""

from runnel.registry.protobuf.records import (
    Decoder,
    InvalidRecord,
    read_message_indexes,
    write_message_indexes,
)
from runnel.registry.protobuf.schema import FORMAT, ProtobufSchema

__all__ = [
    "FORMAT",
    "Decoder",
    "InvalidRecord",
    "ProtobufSchema",
    "read_message_indexes",
    "write_message_indexes",
]
