"""Protobuf as a format of the registry."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool

from runnel.registry.format import Incompatibility, InvalidSchema, ReferencedSchema
from runnel.registry.protobuf import canonical, compatibility, linking, model
from runnel.registry.protobuf.checks import check_strings
from runnel.registry.protobuf.elements import Elements
from runnel.registry.protobuf.linking import SCHEMA_FILE
from runnel.registry.protobuf.model import Message
from runnel.registry.protobuf.printer import print_file

_CONFLUENT = "confluent."
_NAME_OF_SERIALIZED = "default"
"""As in Confluent's registry; clients replace it by the name of the import."""


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """A schema, not linked: that takes a hundred kilobytes, and a registry keeps thousands of schemas."""

    text: str
    identity: str
    _file: bytes = field(repr=False)
    """The canonical file."""
    _missing: tuple[str, ...]
    """Imports without a text. Nothing uses them, or only options that stay uninterpreted."""
    _needed: tuple[bytes, ...] = field(repr=False)
    """The files of references and well-known imports, in an order in which they can be linked."""

    def link(self) -> DescriptorPool:
        """A pool that has the schema, as the file SCHEMA_FILE, and everything that it imports."""
        file = model.FileDescriptorProto.FromString(self._file)
        file.name = SCHEMA_FILE
        return linking.link_again([*self._needed, linking.for_linker(file, self._missing)])

    def normalized(self) -> str:
        pool = self.link()
        return print_file(canonical.normalized(self._canonical(pool)), pool)

    def formatted(self, name: str) -> str:
        """`serialized`: base64 of the FileDescriptorProto; `ignore_extensions`: source without extensions."""
        if name == "serialized":
            file = linking.linkable(model.FileDescriptorProto.FromString(self._file), self._missing)
            file.name = _NAME_OF_SERIALIZED
            return base64.b64encode(file.SerializeToString()).decode()
        if name == "ignore_extensions":
            pool = self.link()
            return print_file(_without_extensions(self._canonical(pool)), pool)
        return self.text

    def incompatibilities(self, writer: "ProtobufSchema") -> list[Incompatibility]:
        if self.identity == writer.identity and self._needed == writer._needed:
            return []
        reader_pool, writer_pool = self.link(), writer.link()
        return compatibility.compare(
            reader_pool.FindFileByName(SCHEMA_FILE), writer_pool.FindFileByName(SCHEMA_FILE)
        )

    def _canonical(self, pool: DescriptorPool) -> Message:
        descriptor = pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto")
        return message_factory.GetMessageClass(descriptor).FromString(self._file)


class ProtobufFormat:
    """Parses `.proto` source and base64 of a FileDescriptorProto."""

    def parse(self, text: str, references: Sequence[ReferencedSchema] = ()) -> ProtobufSchema:
        """A schema of `.proto` source keeps its text; that of a descriptor is printed."""
        linked = linking.link(text, references)
        file = canonical.canonical(linked.file, linked.pool)
        serialized = file.SerializeToString(deterministic=True)
        identity = hashlib.sha256(serialized).hexdigest()
        if not linking.is_descriptor(text):
            return ProtobufSchema(text, identity, serialized, linked.missing, linked.needed)
        check_strings(file)
        source = print_file(file, linked.pool, keeps_map_entries=True)
        schema = self.parse(source, references)
        if schema.identity != identity:
            raise InvalidSchema("the descriptor has parts that .proto source cannot express")
        return schema


FORMAT = ProtobufFormat()


def _without_extensions(file: Message) -> Message:
    """A copy without extensions, ranges of numbers for them, and custom options, but for Confluent's."""
    copy = type(file)()
    copy.CopyFrom(file)
    elements = Elements(copy)
    for _name, message in elements.messages:
        del message.extension[:]
        del message.extension_range[:]
    del copy.extension[:]
    for _scope, element in elements.with_options():
        for option, _value in element.options.ListFields():
            if option.is_extension and not option.full_name.startswith(_CONFLUENT):
                element.options.ClearExtension(option)
        if not element.options.ByteSize():
            element.ClearField("options")
    return copy
