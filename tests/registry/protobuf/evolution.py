"""Random changes of a Protobuf file, random records of it, and what has to be left of them after a change."""

import random
from typing import Any

from google.protobuf import descriptor_pb2 as pb

Field: Any = pb.FieldDescriptorProto
NAMED = (Field.TYPE_MESSAGE, Field.TYPE_GROUP, Field.TYPE_ENUM)
ENCODINGS = [
    [Field.TYPE_INT32, Field.TYPE_INT64, Field.TYPE_UINT32, Field.TYPE_UINT64, Field.TYPE_BOOL],
    [Field.TYPE_SINT32, Field.TYPE_SINT64],
    [Field.TYPE_STRING, Field.TYPE_BYTES],
    [Field.TYPE_FIXED32, Field.TYPE_SFIXED32],
    [Field.TYPE_FIXED64, Field.TYPE_SFIXED64],
    [Field.TYPE_FLOAT],
    [Field.TYPE_DOUBLE],
]
BITS = {
    Field.TYPE_INT32: 32, Field.TYPE_SINT32: 32, Field.TYPE_SFIXED32: 32, Field.TYPE_UINT32: 32,
    Field.TYPE_INT64: 64, Field.TYPE_SINT64: 64, Field.TYPE_SFIXED64: 64, Field.TYPE_UINT64: 64,
    Field.TYPE_FIXED32: 32, Field.TYPE_FIXED64: 64, Field.TYPE_ENUM: 32,
}  # fmt: skip
UNSIGNED = (Field.TYPE_UINT32, Field.TYPE_UINT64, Field.TYPE_FIXED32, Field.TYPE_FIXED64)
ZIGZAG = (Field.TYPE_SINT32, Field.TYPE_SINT64)


class Evolution:
    """Changes a file in place, step by step. Not every result is a valid file."""

    def __init__(self, file: pb.FileDescriptorProto, rng: random.Random) -> None:
        self.file = file
        self.rng = rng

    def step(self) -> None:
        messages = [message for message in all_messages(self.file) if not message.options.map_entry]
        changes = (
            self._add_field, self._remove_field, self._rename_field, self._change_type, self._change_type,
            self._change_label, self._join_oneof, self._leave_oneof, self._remove_oneof, self._add_message,
            self._remove_message, self._change_constants,
        )  # fmt: skip
        self.rng.choice(changes)(self.rng.choice([each for each in messages if each.field] or messages))

    def _add_field(self, message: pb.DescriptorProto) -> None:
        number = self.rng.randrange(41, 60)
        label = self.rng.choice([Field.LABEL_OPTIONAL, Field.LABEL_REPEATED])
        message.field.add(name=f"new{number}", number=number, label=label, type=self._scalar())

    def _scalar(self) -> Any:
        return self.rng.choice(self.rng.choice(ENCODINGS))

    def _field(self, message: pb.DescriptorProto) -> pb.FieldDescriptorProto:
        return self.rng.choice(message.field) if message.field else pb.FieldDescriptorProto()

    def _remove_field(self, message: pb.DescriptorProto) -> None:
        if message.field:
            self._drop(message, self.rng.randrange(len(message.field)))

    def _drop(self, message: pb.DescriptorProto, index: int) -> None:
        """Remove a field with the map entry or group that it implies, and its oneof if that is empty now."""
        field = message.field[index]
        implied = field.type_name.rpartition(".")[2]
        for position, nested in enumerate(message.nested_type):
            if nested.name == implied and (nested.options.map_entry or field.type == Field.TYPE_GROUP):
                del message.nested_type[position]
                break
        del message.field[index]
        _drop_empty_oneofs(message)

    def _rename_field(self, message: pb.DescriptorProto) -> None:
        field = self._field(message)
        if field.type not in (Field.TYPE_MESSAGE, Field.TYPE_GROUP) and not field.proto3_optional:
            field.name = f"renamed_{field.name}"

    def _change_type(self, message: pb.DescriptorProto) -> None:
        """Mostly to a type of the same encoding; keys and values of maps as well."""
        entries = [each for each in message.nested_type if each.options.map_entry]
        field = self._field(self.rng.choice([message, message, *entries]))
        if field.type in (Field.TYPE_MESSAGE, Field.TYPE_GROUP):
            return
        field.ClearField("default_value")
        field.options.ClearField("packed")
        alike = next((types for types in ENCODINGS if field.type in types), ENCODINGS[0])
        field.type = self.rng.choice(alike) if self.rng.random() < 0.8 else self._scalar()
        field.ClearField("type_name")

    def _change_label(self, message: pb.DescriptorProto) -> None:
        field = self._field(message)
        if not field.HasField("oneof_index") and field.type != Field.TYPE_GROUP:
            field.ClearField("default_value")
            field.options.ClearField("packed")
            labels = [Field.LABEL_OPTIONAL, Field.LABEL_REPEATED] + [Field.LABEL_REQUIRED] * (
                not self.file.syntax
            )
            field.label = self.rng.choice(labels)

    def _join_oneof(self, message: pb.DescriptorProto) -> None:
        """One or two neighbours move into a oneof, a new one or that of a neighbour."""
        free = [
            each
            for each in message.field
            if not each.HasField("oneof_index") and each.label == Field.LABEL_OPTIONAL
        ]
        joining = free[: self.rng.choice([1, 1, 2])]
        if joining and not any(each.proto3_optional for each in message.field):
            if message.oneof_decl and self.rng.random() < 0.5:
                index = self.rng.randrange(len(message.oneof_decl))
            else:
                index = len(message.oneof_decl)
                message.oneof_decl.add(name="joined")
            for field in joining:
                field.oneof_index = index
            ordered = sorted(
                message.field, key=lambda each: each.oneof_index if each.HasField("oneof_index") else -1
            )
            copies = [pb.FieldDescriptorProto.FromString(each.SerializeToString()) for each in ordered]
            del message.field[:]
            message.field.extend(copies)

    def _leave_oneof(self, message: pb.DescriptorProto) -> None:
        field = self._field(message)
        field.ClearField("oneof_index")
        field.ClearField("proto3_optional")
        _drop_empty_oneofs(message)

    def _remove_oneof(self, message: pb.DescriptorProto) -> None:
        if message.oneof_decl:
            index = self.rng.randrange(len(message.oneof_decl))
            members = [
                i
                for i, each in enumerate(message.field)
                if each.HasField("oneof_index") and each.oneof_index == index
            ]
            for position in reversed(members):
                del message.field[position]
            _drop_empty_oneofs(message)

    def _add_message(self, message: pb.DescriptorProto) -> None:
        message.nested_type.add(name="Added")

    def _remove_message(self, message: pb.DescriptorProto) -> None:
        if self.rng.random() < 0.3 and message.nested_type:
            del message.nested_type[self.rng.randrange(len(message.nested_type))]

    def _change_constants(self, message: pb.DescriptorProto) -> None:
        for scope, enums in ((message.name, message.enum_type), ("FILE", self.file.enum_type)):
            for enum in enums:
                kept = {value.number for value in enum.value[1:] if self.rng.random() < 0.5}
                enum.ClearField("reserved_range")
                enum.ClearField("options")
                del enum.value[:]
                for index, number in enumerate([0, *sorted(kept - {0})]):
                    enum.value.add(name=f"{scope}_{enum.name}_{index}", number=number)


def _drop_empty_oneofs(message: pb.DescriptorProto) -> None:
    used = sorted({each.oneof_index for each in message.field if each.HasField("oneof_index")})
    kept = [
        pb.OneofDescriptorProto.FromString(message.oneof_decl[index].SerializeToString()) for index in used
    ]
    for field in message.field:
        if field.HasField("oneof_index"):
            field.oneof_index = used.index(field.oneof_index)
    del message.oneof_decl[:]
    message.oneof_decl.extend(kept)


def all_messages(file: pb.FileDescriptorProto) -> list[pb.DescriptorProto]:
    found = list(file.message_type)
    for message in found:
        found += message.nested_type
    return found


def fill(message: Any, rng: random.Random, depth: int = 0) -> None:
    """Set fields of a message: all that are required, and some others."""
    for field in message.DESCRIPTOR.fields:
        if not field.is_required and (rng.random() < 0.3 or (depth > 2 and field.message_type)):
            continue
        count = rng.randrange(1, 4) if field.is_repeated else 1
        if is_map(field):
            _fill_map(getattr(message, field.name), field, rng, count, depth)
        elif field.message_type is not None:
            for _ in range(count):
                inner = getattr(message, field.name)
                inner = inner.add() if field.is_repeated else inner
                if not field.is_repeated:
                    inner.SetInParent()
                fill(inner, rng, depth + 1)
        elif field.is_repeated:
            getattr(message, field.name).extend(scalar(field, rng) for _ in range(count))
        else:
            setattr(message, field.name, scalar(field, rng))


def _fill_map(values: Any, field: Any, rng: random.Random, count: int, depth: int) -> None:
    key, value = field.message_type.fields
    for _ in range(count):
        if value.message_type is not None:
            fill(values[scalar(key, rng)], rng, depth + 1)
        else:
            values[scalar(key, rng)] = scalar(value, rng)


def is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def scalar(field: Any, rng: random.Random) -> Any:
    """A value of a field. That of bytes is text, as bytes can only become a string if they are."""
    if field.type == Field.TYPE_ENUM:
        return rng.choice(field.enum_type.values).number
    if field.type in BITS:
        bits = BITS[field.type]
        value = rng.choice([0, 1, 5, rng.getrandbits(bits), 2 ** (bits - 1)]) % 2**bits
        return value if field.type in UNSIGNED or value < 2 ** (bits - 1) else value - 2**bits
    if field.type == Field.TYPE_BOOL:
        return rng.random() < 0.5
    if field.type in (Field.TYPE_STRING, Field.TYPE_BYTES):
        text = rng.choice(["", "a", "äöü", "\0", "x" * 200])
        return text if field.type == Field.TYPE_STRING else text.encode()
    return rng.choice([0.0, -1.5, 2.0**20, float("inf")])


MISSING = object()


def converted(value: Any, old: Any, new: Any) -> Any:
    """A scalar of a record as another type reads it; MISSING if a closed enum does not have it."""
    if old.type in (Field.TYPE_STRING, Field.TYPE_BYTES):
        raw = value.encode() if isinstance(value, str) else value
        return raw.decode() if new.type == Field.TYPE_STRING else raw
    if old.type in (Field.TYPE_FLOAT, Field.TYPE_DOUBLE):
        return value
    if old.type in ZIGZAG:
        # Zigzag is undone after the number is cut to 32 bits.
        encoded = (value << 1) ^ (value >> 63)
        encoded &= 2 ** BITS[new.type] - 1
        return (encoded >> 1) ^ -(encoded & 1)
    encoded = int(value) % 2 ** (
        BITS[old.type] if old.type in (Field.TYPE_FIXED32, Field.TYPE_SFIXED32) else 64
    )
    if new.type == Field.TYPE_BOOL:
        return encoded != 0
    bits = BITS[new.type]
    encoded %= 2**bits
    number = encoded if new.type in UNSIGNED or encoded < 2 ** (bits - 1) else encoded - 2**bits
    if (
        new.type == Field.TYPE_ENUM
        and new.enum_type.is_closed
        and number not in new.enum_type.values_by_number
    ):
        return MISSING
    return number


def assert_kept(old: Any, new: Any) -> None:
    """Every field of `old` that the schema of `new` has is in `new`, which was read from the same bytes."""
    present = {field.number: value for field, value in old.ListFields()}
    fields = old.DESCRIPTOR.fields_by_number
    for field in new.DESCRIPTOR.fields:
        value = getattr(new, field.name)
        if field.number not in present:
            assert not [each for each, _value in new.ListFields() if each.number == field.number]
        elif is_map(field):
            _assert_map_kept(present[field.number], fields[field.number], value, field)
        elif field.message_type is not None:
            _assert_messages_kept(present[field.number], fields[field.number], value, field)
        else:
            _assert_scalars_kept(present[field.number], fields[field.number], new, field)


def _assert_scalars_kept(written: Any, old: Any, new: Any, field: Any) -> None:
    values = [converted(each, old, field) for each in (written if old.is_repeated else [written])]
    values = [each for each in values if each is not MISSING]
    if field.is_repeated:
        assert list(getattr(new, field.name)) == values
    elif values:
        assert getattr(new, field.name) == values[-1]
        assert not field.has_presence or new.HasField(field.name)
    else:
        assert not field.has_presence or not new.HasField(field.name)


def _assert_messages_kept(written: Any, old: Any, value: Any, field: Any) -> None:
    """Messages that are no longer repeated are merged."""
    messages = list(written) if old.is_repeated else [written]
    if field.is_repeated:
        assert len(value) == len(messages)
        for each, other in zip(messages, value, strict=True):
            assert_kept(each, other)
        return
    merged = type(messages[0])()
    for each in messages:
        merged.MergeFrom(each)
    assert_kept(merged, value)


def _assert_map_kept(written: Any, old: Any, value: Any, field: Any) -> None:
    """Keys may become equal by the change; the last of them wins, and the order is not specified."""
    key_type, value_type = field.message_type.fields
    old_key, old_value = old.message_type.fields
    expected: dict[Any, list[Any]] = {}
    for key, each in written.items():
        expected.setdefault(converted(key, old_key, key_type), []).append(each)
    for key, candidates in expected.items():
        if len(candidates) > 1:
            assert key in value
        elif value_type.message_type is not None:
            assert_kept(candidates[0], value[key])
        elif (kept := converted(candidates[0], old_value, value_type)) is MISSING:
            assert key not in value
        else:
            assert value[key] == kept
    assert set(value) <= set(expected)
