"""protoc, the independent opinion on what a `.proto` text means."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

import grpc_tools
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_tools import protoc

from runnel.registry.protobuf import model
from runnel.registry.protobuf.elements import Elements
from runnel.registry.protobuf.model import Message

WELL_KNOWN = Path(grpc_tools.__file__).parent / "_proto"
"""The files of protobuf itself, as protoc has them."""


def compile_proto(
    text: str, others: Mapping[str, str] | None = None
) -> descriptor_pb2.FileDescriptorProto | None:
    """What protoc makes of a text, or None if it refuses it. `others` are files to import."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in {**(others or {}), "main.proto": text}.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode("utf-8", "surrogatepass"))
        out = Path(folder, "out.pb")
        arguments = [f"-I{folder}", f"-I{WELL_KNOWN}", f"--descriptor_set_out={out}", "--retain_options"]
        if protoc.main(["protoc", *arguments, "main.proto"]) != 0:
            return None
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[-1]


def comparable(file: Message, pool: DescriptorPool) -> Message:
    """A descriptor, read with the custom options of `pool`, without what does not matter in a registry.

    protoc writes the names of fields in JSON even if these are the default, and empty options.
    """
    descriptor = pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto")
    copy = message_factory.GetMessageClass(descriptor).FromString(file.SerializeToString())
    copy.ClearField("name")
    elements = Elements(copy)
    for _name, field in elements.all_fields():
        if field.json_name == model.json_name(field.name):
            field.ClearField("json_name")
    for _name, element in elements.with_options():
        if not element.options.ByteSize():
            element.ClearField("options")
    return copy
