"""FileDescriptorProto and its parts, the model of a Protobuf schema.

They come from a pool of their own, without extensions: what other modules of the process load into protobuf's
default pool must not change how the options of a schema are read.
"""

from typing import Any

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

DESCRIPTOR_PROTO = "google/protobuf/descriptor.proto"

Message = Any
"""A message of protobuf, whose package has no types."""


def _message_class(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"google.protobuf.{name}"))


_POOL = DescriptorPool()
_POOL.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)

FileDescriptorProto = _message_class("FileDescriptorProto")
DescriptorProto = _message_class("DescriptorProto")
FieldDescriptorProto = _message_class("FieldDescriptorProto")
UninterpretedOption = _message_class("UninterpretedOption")
OPTION_CLASSES = {
    f"google.protobuf.{name}Options": _message_class(f"{name}Options")
    for name in (
        "File", "Message", "Field", "Oneof", "ExtensionRange", "Enum", "EnumValue", "Service", "Method"
    )
}  # fmt: skip

SCALAR_TYPES: dict[str, int] = {
    name.removeprefix("TYPE_").lower(): value
    for name, value in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
}
SCALAR_NAMES = {value: name for name, value in SCALAR_TYPES.items()}
TYPE_MESSAGE: int = FieldDescriptorProto.TYPE_MESSAGE
TYPE_GROUP: int = FieldDescriptorProto.TYPE_GROUP
TYPE_ENUM: int = FieldDescriptorProto.TYPE_ENUM
TYPE_STRING: int = FieldDescriptorProto.TYPE_STRING
TYPE_BYTES: int = FieldDescriptorProto.TYPE_BYTES
TYPE_BOOL: int = FieldDescriptorProto.TYPE_BOOL
TYPE_FLOAT: int = FieldDescriptorProto.TYPE_FLOAT
TYPE_DOUBLE: int = FieldDescriptorProto.TYPE_DOUBLE
LABEL_OPTIONAL: int = FieldDescriptorProto.LABEL_OPTIONAL
LABEL_REQUIRED: int = FieldDescriptorProto.LABEL_REQUIRED
LABEL_REPEATED: int = FieldDescriptorProto.LABEL_REPEATED

INTEGER_BITS = {
    FieldDescriptorProto.TYPE_INT32: 31,
    FieldDescriptorProto.TYPE_SINT32: 31,
    FieldDescriptorProto.TYPE_SFIXED32: 31,
    FieldDescriptorProto.TYPE_UINT32: 32,
    FieldDescriptorProto.TYPE_FIXED32: 32,
    FieldDescriptorProto.TYPE_INT64: 63,
    FieldDescriptorProto.TYPE_SINT64: 63,
    FieldDescriptorProto.TYPE_SFIXED64: 63,
    FieldDescriptorProto.TYPE_UINT64: 64,
    FieldDescriptorProto.TYPE_FIXED64: 64,
}
"""Bits of the largest value of an integer type; an odd number means a signed one."""

FIELD_NUMBER_MAX = 2**29 - 1
MESSAGE_SET_NUMBER_MAX = 2**31 - 2
INT32_MAX = 2**31 - 1


def is_map_entry(message: Message) -> bool:
    return bool(message.options.map_entry)


def json_name(name: str) -> str:
    """The name of a field in JSON, unless its declaration gives another."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def map_entry_name(field_name: str) -> str:
    """The name of the message that a map field implies."""
    return "".join(part[:1].upper() + part[1:] for part in field_name.split("_")) + "Entry"
