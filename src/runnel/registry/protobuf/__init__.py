"""Protobuf schemas: `.proto` source and descriptors, equality, printing, compatibility, records.

A text becomes a FileDescriptorProto (`parser`), its names are resolved (`symbols`, `names`), its options interpreted
(`options`) and its rules checked (`checks`, and protobuf's own linker). `linking` does this for a schema and all that
it imports. `canonical` and `layout` define the one form that equal schemas have, which `printer` prints.
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
