"""Options as the parser leaves them, interpreted: their values become fields of the options messages.

Standard options are interpreted before a file is linked, as some of them affect that. Custom ones are
extensions of the options messages, possibly declared in the same file, and need the linked file. One that
is not declared stays uninterpreted if an import of the file has no text: Confluent's registry accepts such
files.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from google.protobuf import message_factory, text_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as AnyMessage

from runnel.registry.format import InvalidSchema
from runnel.registry.protobuf import limits, model
from runnel.registry.protobuf.elements import Elements
from runnel.registry.protobuf.literals import shortened
from runnel.registry.protobuf.model import Message
from runnel.registry.protobuf.symbols import Kind, Symbols

_ATTRIBUTES = dir(AnyMessage)
"""A field of one of these names hides what is needed to set the fields of its message."""

_AGGREGATE_ERRORS = (text_format.ParseError, ValueError, TypeError, KeyError, AttributeError)


def interpret_standard(elements: Elements) -> None:
    """Interpret the options that descriptor.proto declares. Raises InvalidSchema."""
    with_options = elements.with_options()
    _limit_aggregates([element for _scope, element in with_options])
    for scope, element in with_options:
        pending = list(element.options.uninterpreted_option)
        del element.options.uninterpreted_option[:]
        for option in pending:
            if any(part.is_extension for part in option.name):
                element.options.uninterpreted_option.append(option)
            else:
                _Assignment(option, scope, _no_extension, None).apply(element.options)
        _drop_empty(element)


def interpret_custom(elements: Elements, pool: DescriptorPool, symbols: Symbols, *, is_lenient: bool) -> None:
    """Interpret the options that are extensions. `pool` has the file and its imports. Raises InvalidSchema.

    With `is_lenient`, those that are not declared stay uninterpreted.
    """

    def find(name: str, scope: str) -> Message | None:
        found = symbols.resolve(name, scope, elements.file.name)
        if found is None or found[1] is not Kind.EXTENSION:
            return None
        return pool.FindExtensionByName(found[0])

    for scope, element in elements.with_options():
        if not element.options.uninterpreted_option:
            continue
        pending = list(element.options.uninterpreted_option)
        del element.options.uninterpreted_option[:]
        unknown = []
        name = element.options.DESCRIPTOR.full_name
        options_class = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        try:
            options = options_class.FromString(element.options.SerializeToString())
        except DecodeError as error:
            raise InvalidSchema(
                f"{scope}: a custom option is not what its declaration says: {error}"
            ) from error
        for option in pending:
            if is_lenient and not _is_declared(option, scope, find):
                unknown.append(option)
            else:
                _Assignment(option, scope, find, pool).apply(options)
        element.options.Clear()
        element.options.MergeFromString(options.SerializeToString(deterministic=True))
        element.options.uninterpreted_option.extend(unknown)
        _drop_empty(element)


FindExtension = Callable[[str, str], Message | None]
"""The extension that a name means in a scope."""


def _no_extension(name: str, scope: str) -> None:
    return None


def _is_declared(option: Message, scope: str, find: FindExtension) -> bool:
    return all(find(part.name_part, scope) is not None for part in option.name if part.is_extension)


def _is_set(message: Message, field: Message) -> bool:
    if field.is_extension:
        return bool(message.HasExtension(field))
    return bool(message.HasField(field.name) if field.has_presence else getattr(message, field.name))


def _drop_empty(element: Message) -> None:
    if not element.options.ByteSize():
        element.ClearField("options")


def _limit_aggregates(with_options: list[Message]) -> None:
    size = sum(
        len(option.aggregate_value)
        for element in with_options
        for option in element.options.uninterpreted_option
    )
    if size > limits.AGGREGATE_BYTES_MAX:
        raise InvalidSchema(f"the values in braces of all options exceed {limits.AGGREGATE_BYTES_MAX} bytes")


@dataclass(frozen=True, slots=True)
class _Assignment:
    """One option with its value, as it is written at one element."""

    option: Message
    scope: str
    find_extension: FindExtension
    pool: DescriptorPool | None

    @property
    def name(self) -> str:
        parts = (f"({part.name_part})" if part.is_extension else part.name_part for part in self.option.name)
        return shortened(".".join(parts))

    def apply(self, options: Message) -> None:
        target = options
        *outer, last = self.option.name
        for part in outer:
            field = self._field(target, part)
            if field.message_type is None or field.is_repeated:
                self._fail(f'"{shortened(part.name_part)}" is not a single message')
            target = target.Extensions[field] if field.is_extension else getattr(target, field.name)
        field = self._field(target, last)
        if not field.is_repeated and _is_set(target, field):
            self._fail("it is set twice")
        self._assign(target, field)

    def _field(self, message: Message, part: Message) -> Message:
        field = self._extension(message, part) if part.is_extension else self._standard(message, part)
        if field.message_type is not None:
            fields = field.message_type.fields_by_name
            if any(name in fields for name in _ATTRIBUTES):
                self._fail("its message has a field with the name of an attribute of messages in Python")
        return field

    def _standard(self, message: Message, part: Message) -> Message:
        field = message.DESCRIPTOR.fields_by_name.get(part.name_part)
        if field is None or field.name == "uninterpreted_option":
            self._fail("there is no such option")
        return field

    def _extension(self, message: Message, part: Message) -> Message:
        field = self.find_extension(part.name_part, self.scope)
        if field is None:
            self._fail("no extension of this name is declared; is the file that does so imported?")
        extended = field.containing_type.full_name
        if extended != message.DESCRIPTOR.full_name:
            self._fail(f"{field.full_name} extends {extended}, not {message.DESCRIPTOR.full_name}")
        return field

    def _assign(self, target: Message, field: Message) -> None:
        if field.message_type is not None:
            self._assign_message(target, field)
            return
        value = self._value(field)
        if field.is_extension and field.is_repeated:
            target.Extensions[field].append(value)
        elif field.is_extension:
            target.Extensions[field] = value
        elif field.is_repeated:
            getattr(target, field.name).append(value)
        else:
            setattr(target, field.name, value)

    def _assign_message(self, target: Message, field: Message) -> None:
        if not self.option.HasField("aggregate_value"):
            self._fail("its value is a message, which is written in braces")
        value = target.Extensions[field] if field.is_extension else getattr(target, field.name)
        if field.is_repeated:
            value = value.add()
        else:
            value.SetInParent()
        try:
            text_format.Merge(self.option.aggregate_value, value, descriptor_pool=self.pool)
        except _AGGREGATE_ERRORS as error:
            self._fail(f"its value is not text of {field.message_type.full_name}: {error}")

    def _value(self, field: Message) -> object:
        option = self.option
        if bits := model.INTEGER_BITS.get(field.type):
            return self._integer(bits)
        if field.type in (model.TYPE_FLOAT, model.TYPE_DOUBLE):
            return self._number()
        if field.type == model.TYPE_BOOL:
            if option.identifier_value not in ("true", "false"):
                self._fail("its value is true or false")
            return option.identifier_value == "true"
        if field.type == model.TYPE_ENUM:
            value = field.enum_type.values_by_name.get(option.identifier_value)
            if value is None:
                self._fail(f"its value is a constant of {field.enum_type.full_name}")
            return value.number
        if not option.HasField("string_value"):
            self._fail("its value is a string")
        if field.type == model.TYPE_BYTES:
            return option.string_value
        try:
            return option.string_value.decode("utf-8")
        except UnicodeDecodeError:
            self._fail("its value is not valid UTF-8")

    def _integer(self, bits: int) -> int:
        option = self.option
        if option.HasField("positive_int_value"):
            value: int = option.positive_int_value
        elif option.HasField("negative_int_value"):
            value = option.negative_int_value
        else:
            self._fail("its value is an integer")
        smallest = -(2**bits) if bits % 2 else 0
        if not smallest <= value < 2**bits:
            self._fail(f"{value} is out of range")
        return value

    def _number(self) -> float:
        option = self.option
        for kind in ("double_value", "positive_int_value", "negative_int_value"):
            if option.HasField(kind):
                return float(getattr(option, kind))
        if option.identifier_value in ("inf", "nan"):
            return float(option.identifier_value)
        self._fail("its value is a number")

    def _fail(self, reason: str) -> NoReturn:
        raise InvalidSchema(f"{self.scope}: option {self.name}: {reason}")
