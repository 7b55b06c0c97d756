"""Random Protobuf files, as descriptors and as source."""

import base64
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from hypothesis import strategies as st

Field = pb.FieldDescriptorProto
SCALARS = sorted(set(Field.Type.values()) - {Field.TYPE_GROUP, Field.TYPE_MESSAGE, Field.TYPE_ENUM})
MAP_KEYS = sorted(set(SCALARS) - {Field.TYPE_FLOAT, Field.TYPE_DOUBLE, Field.TYPE_BYTES})
UNPACKABLE = (Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_MESSAGE, Field.TYPE_GROUP)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)


def serialized(file: Any) -> str:
    """A descriptor as clients register it."""
    return base64.b64encode(file.SerializeToString()).decode()


@st.composite
def files(draw: st.DrawFn, syntaxes: tuple[str, ...] = ("proto2", "proto3")) -> pb.FileDescriptorProto:
    """A file with messages that use each other, as protoc would describe it."""
    syntax = draw(st.sampled_from(syntaxes))
    file = pb.FileDescriptorProto(package=draw(st.sampled_from(["", "p", "p.q_r"])))
    if syntax == "proto3":
        file.syntax = syntax
    builder = _Builder(draw, file, syntax)
    for index in range(draw(st.integers(0, 2))):
        builder.enum(file.enum_type.add(), f"E{index}", file.package)
    for index in range(draw(st.integers(1, 3))):
        builder.declare(file.message_type.add(), f"M{index}", file.package, depth=0)
    builder.fill()
    return file


class _Builder:
    """Declares all types first, so that any field can use any of them."""

    def __init__(self, draw: st.DrawFn, file: pb.FileDescriptorProto, syntax: str) -> None:
        self.draw = draw
        self.file = file
        self.syntax = syntax
        self.messages: list[tuple[str, pb.DescriptorProto]] = []
        self.enums: list[tuple[str, pb.EnumDescriptorProto]] = []

    def declare(self, message: pb.DescriptorProto, name: str, scope: str, depth: int) -> None:
        message.name = name
        full_name = f"{scope}.{name}" if scope else name
        self.messages.append((full_name, message))
        if depth < 2:
            for index in range(self.draw(st.integers(0, 2 - depth))):
                self.declare(message.nested_type.add(), f"N{index}", full_name, depth + 1)
        if self.draw(st.booleans()):
            self.enum(message.enum_type.add(), "E", full_name)

    def enum(self, enum: pb.EnumDescriptorProto, name: str, scope: str) -> None:
        enum.name = name
        full_name = f"{scope}.{name}" if scope else name
        self.enums.append((full_name, enum))
        prefix = full_name.replace(".", "_").upper()
        numbers = self.draw(st.lists(st.integers(-5, 9) | st.integers(-(2**31), 2**31 - 1), max_size=3, unique=True))
        numbers = [0, *(each for each in numbers if each != 0)]
        if self.draw(st.booleans()) and self.syntax == "proto2":
            numbers = numbers[1:] or numbers
        for index, number in enumerate(numbers):
            enum.value.add(name=f"{prefix}_V{index}", number=number)
        if self.draw(st.integers(0, 4)) == 0:
            enum.value.add(name=f"{prefix}_ALIAS", number=numbers[-1])
            enum.options.allow_alias = True
        free = min(numbers) - 3
        if self.draw(st.integers(0, 3)) == 0 and free > -(2**31):
            enum.reserved_range.add(start=free - 1, end=free)
            enum.reserved_name.append("GONE")

    def fill(self) -> None:
        for full_name, message in self.messages:
            self._fields(full_name, message)

    def _fields(self, full_name: str, message: pb.DescriptorProto) -> None:
        draw = self.draw
        numbers = iter(draw(st.lists(st.integers(1, 40) | st.integers(20_000, 2**29 - 100), min_size=8, unique=True)))
        kinds = ["field", "field", "field", "map", "oneof"] + ["group"] * (self.syntax == "proto2")
        for index, kind in enumerate(draw(st.lists(st.sampled_from(kinds), max_size=4))):
            name = draw(st.sampled_from(["f", "some_name", "x_1", "camelCase", "_u"])) + str(index)
            if kind == "map":
                self._map(full_name, message, name, next(numbers))
            elif kind == "group":
                self._group(full_name, message, index, next(numbers))
            elif kind == "oneof":
                message.oneof_decl.add(name=f"oneof{index}")
                for member in range(draw(st.integers(1, 2))):
                    self._field(message, f"{name}_{member}", next(numbers), True)
            else:
                self._field(message, name, next(numbers), False)
        self._reserve(message)
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"X{field.name}" if field.name.startswith("_") else f"_{field.name}")

    def _reserve(self, message: pb.DescriptorProto) -> None:
        largest = max([field.number for field in message.field], default=0)
        if self.draw(st.integers(0, 3)) == 0:
            message.reserved_range.add(start=largest + 1, end=largest + self.draw(st.integers(2, 9)))
            message.reserved_name.append("gone")
        if self.syntax == "proto2" and self.draw(st.integers(0, 3)) == 0:
            message.extension_range.add(start=largest + 20, end=2**29)

    def _type(self, field: Field) -> None:
        kinds = ["scalar", "scalar", "message"] + ["enum"] * bool(self.enums)
        kind = self.draw(st.sampled_from(kinds))
        if kind == "scalar":
            field.type = self.draw(st.sampled_from(SCALARS))
        elif kind == "message":
            field.type = Field.TYPE_MESSAGE
            field.type_name = "." + self.draw(st.sampled_from(self.messages))[0]
        else:
            field.type = Field.TYPE_ENUM
            field.type_name = "." + self.draw(st.sampled_from(self.enums))[0]

    def _field(self, message: pb.DescriptorProto, name: str, number: int, is_member: bool) -> None:
        draw = self.draw
        field = message.field.add(name=name, number=number, label=Field.LABEL_OPTIONAL)
        self._type(field)
        if is_member:
            field.oneof_index = len(message.oneof_decl) - 1
        elif draw(st.integers(0, 2)) == 0:
            field.label = Field.LABEL_REPEATED
            if field.type not in UNPACKABLE and draw(st.booleans()):
                field.options.packed = draw(st.booleans())
        elif self.syntax == "proto3":
            field.proto3_optional = draw(st.booleans())
        elif draw(st.integers(0, 3)) == 0 and field.type != Field.TYPE_MESSAGE:
            field.label = Field.LABEL_REQUIRED
        if draw(st.integers(0, 5)) == 0:
            field.json_name = f"json{number}"
        if draw(st.integers(0, 5)) == 0:
            field.options.deprecated = draw(st.booleans())
        if self.syntax == "proto2" and field.label != Field.LABEL_REPEATED:
            self._default(field)

    def _default(self, field: Field) -> None:
        draw = self.draw
        if field.type == Field.TYPE_STRING and draw(st.booleans()):
            field.default_value = draw(TEXTS)
        elif field.type in (Field.TYPE_INT32, Field.TYPE_SINT32, Field.TYPE_SFIXED32) and draw(st.booleans()):
            field.default_value = str(draw(st.integers(-(2**31), 2**31 - 1)))
        elif field.type == Field.TYPE_BOOL and draw(st.booleans()):
            field.default_value = draw(st.sampled_from(["true", "false"]))
        elif field.type == Field.TYPE_ENUM and draw(st.booleans()):
            values = dict(self.enums)[field.type_name[1:]].value
            field.default_value = draw(st.sampled_from([value.name for value in values]))

    def _map(self, full_name: str, message: pb.DescriptorProto, name: str, number: int) -> None:
        entry_name = "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"
        # protoc puts it where the map is declared; so does a printer that interleaves fields and messages.
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        key = entry.field.add(name="key", number=1, label=Field.LABEL_OPTIONAL)
        key.type = self.draw(st.sampled_from(MAP_KEYS))
        value = entry.field.add(name="value", number=2, label=Field.LABEL_OPTIONAL)
        self._type(value)
        if value.type == Field.TYPE_ENUM and dict(self.enums)[value.type_name[1:]].value[0].number != 0:
            value.type = Field.TYPE_BOOL
            value.ClearField("type_name")
        field = message.field.add(name=name, number=number, label=Field.LABEL_REPEATED, type=Field.TYPE_MESSAGE)
        field.type_name = f".{full_name}.{entry_name}"

    def _group(self, full_name: str, message: pb.DescriptorProto, index: int, number: int) -> None:
        group = message.nested_type.add(name=f"G{index}")
        group.field.add(name="inner", number=1, label=Field.LABEL_OPTIONAL, type=Field.TYPE_INT32)
        label = self.draw(st.sampled_from([Field.LABEL_OPTIONAL, Field.LABEL_REPEATED]))
        field = message.field.add(name=f"g{index}", number=number, label=label, type=Field.TYPE_GROUP)
        field.type_name = f".{full_name}.G{index}"
