"""Random Protobuf files, as descriptors and as source."""

import base64
import random
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from hypothesis import strategies as st

Field: Any = pb.FieldDescriptorProto
SCALARS = sorted(set(Field.Type.values()) - {Field.TYPE_GROUP, Field.TYPE_MESSAGE, Field.TYPE_ENUM})
MAP_KEYS = sorted(set(SCALARS) - {Field.TYPE_FLOAT, Field.TYPE_DOUBLE, Field.TYPE_BYTES})
UNPACKABLE = (Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_MESSAGE, Field.TYPE_GROUP)
TEXTS = ["", "a", "ä€😀", "\n\t\r\\", "'\"", "\x01\x7f", "/* a */ // b"]


def serialized(file: Any) -> str:
    """A descriptor as clients register it."""
    return base64.b64encode(file.SerializeToString()).decode()


def files() -> st.SearchStrategy[pb.FileDescriptorProto]:
    """Files with messages that use each other, as protoc would describe them."""
    # A seed rather than draws: these would take most of the time of the tests.
    return st.integers(0, 2**64).map(lambda seed: random_file(random.Random(seed)))


def random_file(rng: random.Random) -> pb.FileDescriptorProto:
    file = pb.FileDescriptorProto(package=rng.choice(["", "p", "p.q_r"]))
    if rng.random() < 0.5:
        file.syntax = "proto3"
    builder = _Builder(rng, file)
    for index in range(rng.randrange(3)):
        builder.enum(file.enum_type.add(), f"E{index}", file.package)
    for index in range(rng.randrange(1, 4)):
        builder.declare(file.message_type.add(), f"M{index}", file.package, depth=0)
    builder.fill()
    return file


class _Builder:
    """Declares all types first, so that any field can use any of them."""

    def __init__(self, rng: random.Random, file: pb.FileDescriptorProto) -> None:
        self.rng = rng
        self.file = file
        self.is_proto3 = file.syntax == "proto3"
        self.messages: list[tuple[str, pb.DescriptorProto]] = []
        self.enums: list[tuple[str, pb.EnumDescriptorProto]] = []

    def declare(self, message: pb.DescriptorProto, name: str, scope: str, depth: int) -> None:
        message.name = name
        full_name = f"{scope}.{name}" if scope else name
        self.messages.append((full_name, message))
        if depth < 2:
            for index in range(self.rng.randrange(3 - depth)):
                self.declare(message.nested_type.add(), f"N{index}", full_name, depth + 1)
        if self._chance(0.4):
            self.enum(message.enum_type.add(), "E", full_name)

    def enum(self, enum: pb.EnumDescriptorProto, name: str, scope: str) -> None:
        enum.name = name
        full_name = f"{scope}.{name}" if scope else name
        self.enums.append((full_name, enum))
        prefix = full_name.replace(".", "_").upper()
        others = self.rng.sample([1, 2, 3, -1, -5, 2**31 - 1, -(2**31)], self.rng.randrange(4))
        numbers = others if others and not self.is_proto3 and self._chance(0.5) else [0, *others]
        for index, number in enumerate(numbers):
            enum.value.add(name=f"{prefix}_V{index}", number=number)
        if self._chance(0.2):
            enum.value.add(name=f"{prefix}_ALIAS", number=numbers[-1])
            enum.options.allow_alias = True
        free = min(numbers) - 3
        if self._chance(0.25) and free > -(2**31):
            enum.reserved_range.add(start=free - 1, end=free)
            enum.reserved_name.append("GONE")

    def fill(self) -> None:
        for full_name, message in self.messages:
            self._fields(full_name, message)

    def _fields(self, full_name: str, message: pb.DescriptorProto) -> None:
        rng = self.rng
        numbers = iter(rng.sample([*range(1, 40), 20_000, 2**28, 2**29 - 100], 12))
        kinds = ["field", "field", "field", "map", "oneof"] + ["group"] * (not self.is_proto3)
        for index, kind in enumerate(rng.choices(kinds, k=rng.randrange(6))):
            name = rng.choice(["f", "some_name", "x_1", "camelCase", "_u"]) + str(index)
            if kind == "map":
                self._map(full_name, message, name, next(numbers))
            elif kind == "group":
                self._group(full_name, message, index, next(numbers))
            elif kind == "oneof":
                message.oneof_decl.add(name=f"oneof{index}")
                for member in range(rng.choice([1, 2, 2])):
                    self._field(message, f"{name}_{member}", next(numbers), True)
            else:
                self._field(message, name, next(numbers), False)
        self._reserve(message)
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(
                    name=f"X{field.name}" if field.name.startswith("_") else f"_{field.name}"
                )

    def _reserve(self, message: pb.DescriptorProto) -> None:
        largest = max([field.number for field in message.field], default=0)
        if self._chance(0.25):
            message.reserved_range.add(start=largest + 1, end=largest + self.rng.randrange(2, 10))
            message.reserved_name.append("gone")
        if not self.is_proto3 and self._chance(0.25):
            message.extension_range.add(start=largest + 20, end=2**29)

    def _type(self, field: pb.FieldDescriptorProto) -> None:
        kinds = ["scalar", "scalar", "message"] + ["enum"] * bool(self.enums)
        kind = self.rng.choice(kinds)
        if kind == "scalar":
            field.type = self.rng.choice(SCALARS)
        elif kind == "message":
            field.type = Field.TYPE_MESSAGE
            field.type_name = "." + self.rng.choice(self.messages)[0]
        else:
            field.type = Field.TYPE_ENUM
            field.type_name = "." + self.rng.choice(self.enums)[0]

    def _field(self, message: pb.DescriptorProto, name: str, number: int, is_member: bool) -> None:
        field = message.field.add(name=name, number=number, label=Field.LABEL_OPTIONAL)
        self._type(field)
        if is_member:
            field.oneof_index = len(message.oneof_decl) - 1
        elif self._chance(0.3):
            field.label = Field.LABEL_REPEATED
            if field.type not in UNPACKABLE and self._chance(0.5):
                field.options.packed = self._chance(0.5)
        elif self.is_proto3:
            if self._chance(0.5):
                field.proto3_optional = True
        elif self._chance(0.25) and field.type != Field.TYPE_MESSAGE:
            field.label = Field.LABEL_REQUIRED
        if self._chance(0.15):
            field.json_name = f"json{number}"
        if self._chance(0.15):
            field.options.deprecated = self._chance(0.5)
        if not self.is_proto3 and field.label != Field.LABEL_REPEATED and self._chance(0.5):
            self._default(field)

    def _default(self, field: pb.FieldDescriptorProto) -> None:
        if field.type == Field.TYPE_STRING:
            field.default_value = self.rng.choice(TEXTS)
        elif field.type in (Field.TYPE_INT32, Field.TYPE_SINT32, Field.TYPE_SFIXED32):
            field.default_value = str(self.rng.choice([0, -1, 7, 2**31 - 1, -(2**31)]))
        elif field.type == Field.TYPE_BOOL:
            field.default_value = self.rng.choice(["true", "false"])
        elif field.type == Field.TYPE_ENUM:
            values = dict(self.enums)[field.type_name[1:]].value
            field.default_value = self.rng.choice([value.name for value in values])

    def _chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def _map(self, full_name: str, message: pb.DescriptorProto, name: str, number: int) -> None:
        entry_name = "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"
        # protoc puts it where the map is declared; so does a printer that interleaves fields and messages.
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        key = entry.field.add(name="key", number=1, label=Field.LABEL_OPTIONAL)
        key.type = self.rng.choice(MAP_KEYS)
        value = entry.field.add(name="value", number=2, label=Field.LABEL_OPTIONAL)
        self._type(value)
        if value.type == Field.TYPE_ENUM and dict(self.enums)[value.type_name[1:]].value[0].number != 0:
            value.type = Field.TYPE_BOOL
            value.ClearField("type_name")
        field = message.field.add(
            name=name, number=number, label=Field.LABEL_REPEATED, type=Field.TYPE_MESSAGE
        )
        field.type_name = f".{full_name}.{entry_name}"

    def _group(self, full_name: str, message: pb.DescriptorProto, index: int, number: int) -> None:
        group = message.nested_type.add(name=f"G{index}")
        group.field.add(name="inner", number=1, label=Field.LABEL_OPTIONAL, type=Field.TYPE_INT32)
        label = self.rng.choice([Field.LABEL_OPTIONAL, Field.LABEL_REPEATED])
        field = message.field.add(name=f"g{index}", number=number, label=label, type=Field.TYPE_GROUP)
        field.type_name = f".{full_name}.G{index}"
