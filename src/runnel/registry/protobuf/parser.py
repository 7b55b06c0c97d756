"""The parser of `.proto` source. Names are not resolved, and options not interpreted.

The language is that of proto2, proto3 and edition 2023, as protoc has it. A message may declare `option
map_entry` in addition: Confluent's registry prints maps in descriptors of Java clients like this.
"""

from collections.abc import Callable

from runnel.registry.protobuf import limits, model
from runnel.registry.protobuf.elements import check_length
from runnel.registry.protobuf.literals import bytes_literal, float_literal
from runnel.registry.protobuf.model import Message
from runnel.registry.protobuf.tokens import Tokens

_LABELS = {
    "optional": model.LABEL_OPTIONAL,
    "required": model.LABEL_REQUIRED,
    "repeated": model.LABEL_REPEATED,
}
EDITIONS = {"2023": 1000}


def parse(text: str) -> Message:
    """The FileDescriptorProto of a text. Raises InvalidSchema."""
    return _Parser(Tokens(text)).file()


def parse_aggregate(text: str) -> str:
    """The value in braces of an option, as this parser would leave it. Raises InvalidSchema."""
    tokens = Tokens(f"{{ {text} }}")
    aggregate = _Parser(tokens).aggregate()
    if tokens.kind != "end":
        tokens.expected("the end of the value of an option")
    return aggregate


class _Parser:
    """Reads one file; each method reads what it is named after."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._file = model.FileDescriptorProto()
        self._syntax = "proto2"
        self._depth = 0

    def file(self) -> Message:
        self._syntax_or_edition()
        statements = {
            "import": self._import,
            "package": self._package,
            "option": lambda: self._option_statement(self._file.options),
            "message": lambda: self._message(self._file.message_type.add()),
            "enum": lambda: self._enum(self._file.enum_type.add()),
            "extend": lambda: self._extend(self._file.extension, self._file.message_type),
            "service": lambda: self._service(self._file.service.add()),
        }
        while self._tokens.kind != "end":
            self._statement(statements, "a statement, such as message")
        return self._file

    def _statement(self, statements: dict[str, Callable[[], None]], otherwise: str) -> None:
        tokens = self._tokens
        if tokens.accept(";"):
            return
        if tokens.kind != "name" or tokens.text not in statements:
            tokens.expected(otherwise)
        statements[tokens.text]()

    def _syntax_or_edition(self) -> None:
        tokens = self._tokens
        if tokens.accept("edition"):
            tokens.expect("=")
            edition = tokens.utf8("an edition in quotes")
            if edition not in EDITIONS:
                tokens.fail(f'edition "{edition}" is not supported, only proto2, proto3 and edition 2023 are')
            self._syntax = "editions"
            self._file.edition = EDITIONS[edition]
        elif tokens.accept("syntax"):
            tokens.expect("=")
            self._syntax = tokens.utf8("a syntax in quotes")
            if self._syntax not in ("proto2", "proto3"):
                tokens.fail(f'syntax "{self._syntax}" is unknown, there are proto2 and proto3')
        else:
            return
        if self._syntax != "proto2":
            self._file.syntax = self._syntax
        tokens.expect(";")

    def _import(self) -> None:
        tokens = self._tokens
        tokens.advance()
        index = len(self._file.dependency)
        if tokens.accept("public"):
            self._file.public_dependency.append(index)
        elif tokens.accept("weak"):
            self._file.weak_dependency.append(index)
        name = tokens.utf8("the name of a file in quotes")
        self._file.dependency.append(name)
        tokens.expect(";")

    def _package(self) -> None:
        tokens = self._tokens
        if self._file.HasField("package"):
            tokens.fail("there is a second package statement")
        tokens.advance()
        self._file.package = self._dotted_name()
        tokens.expect(";")

    def _dotted_name(self) -> str:
        parts = [self._tokens.name()]
        while self._tokens.accept("."):
            parts.append(self._tokens.name())
        name = ".".join(parts)
        check_length(name)
        return name

    def _type_name(self) -> str:
        prefix = "." if self._tokens.accept(".") else ""
        return prefix + self._dotted_name()

    def _message(self, message: Message) -> None:
        self._tokens.advance()
        message.name = self._tokens.name("the name of a message")
        self._message_body(message)

    def _message_body(self, message: Message) -> None:
        tokens = self._tokens
        if self._depth == limits.NESTING_MAX:
            tokens.fail(f"messages are nested more than {limits.NESTING_MAX} deep")
        self._depth += 1
        statements = {
            "message": lambda: self._message(message.nested_type.add()),
            "enum": lambda: self._enum(message.enum_type.add()),
            "extensions": lambda: self._extensions(message),
            "reserved": lambda: self._message_reserved(message),
            "extend": lambda: self._extend(message.extension, message.nested_type),
            "option": lambda: self._option_statement(message.options),
            "oneof": lambda: self._oneof(message),
        }
        tokens.expect("{")
        while not tokens.accept("}"):
            if tokens.looking_at(";") or (tokens.kind == "name" and tokens.text in statements):
                self._statement(statements, "")
            elif tokens.kind == "name" or tokens.looking_at("."):
                self._field(message.field.add(), message.nested_type, message)
            else:
                tokens.expected("a field, a nested declaration or a closing brace")
        self._depth -= 1
        self._end_ranges(message)
        _add_synthetic_oneofs(message)

    def _end_ranges(self, message: Message) -> None:
        """`max` is larger in a message with the wire format of a message set."""
        names = [option.name[0].name_part for option in message.options.uninterpreted_option]
        is_set = "message_set_wire_format" in names
        last = model.MESSAGE_SET_NUMBER_MAX if is_set else model.FIELD_NUMBER_MAX
        for each in (*message.extension_range, *message.reserved_range):
            if each.end == -1:
                each.end = last + 1

    def _field(self, field: Message, messages: Message, message: Message | None) -> None:
        """A field of `message`, or an extension (None); `messages` receives the type of a group or map."""
        self._label(field)
        tokens = self._tokens
        if tokens.looking_at("map") and tokens.follows("<"):
            if message is None:
                tokens.fail("a map cannot be an extension")
            if field.HasField("label"):
                tokens.fail("a map has no label")
            self._map(field, message)
        else:
            if not field.HasField("label"):
                if self._syntax == "proto2":
                    tokens.expected("required, optional or repeated")
                field.label = model.LABEL_OPTIONAL
            self._field_of_type(field, messages)

    def _label(self, field: Message) -> None:
        tokens = self._tokens
        if tokens.kind != "name" or tokens.text not in _LABELS:
            return
        label = tokens.text
        if self._syntax == "editions" and label != "repeated":
            tokens.fail(f"there is no label {label} in editions: use features.field_presence")
        tokens.advance()
        field.label = _LABELS[label]
        if label == "optional" and self._syntax == "proto3":
            field.proto3_optional = True

    def _field_of_type(self, field: Message, messages: Message) -> None:
        tokens = self._tokens
        if tokens.looking_at("group"):
            self._group(field, messages)
            return
        self._type(field)
        self._name_number_and_options(field)
        tokens.expect(";")

    def _type(self, field: Message) -> None:
        tokens = self._tokens
        if tokens.kind == "name" and tokens.text in model.SCALAR_TYPES:
            field.type = model.SCALAR_TYPES[tokens.advance()]
        else:
            field.type_name = self._type_name()

    def _name_number_and_options(self, field: Message) -> None:
        tokens = self._tokens
        field.name = tokens.name("the name of a field")
        self._number_and_options(field)

    def _number_and_options(self, field: Message) -> None:
        self._tokens.expect("=")
        field.number = self._tokens.integer(model.INT32_MAX, "a field number")
        if self._tokens.looking_at("["):
            self._field_options(field)

    def _group(self, field: Message, messages: Message) -> None:
        tokens = self._tokens
        if self._syntax == "editions":
            tokens.fail("there are no groups in editions: use features.message_encoding")
        tokens.advance()
        name = tokens.name("the name of a group")
        if not name[0].isupper():
            tokens.fail(f"the name of group {name} has to begin with a capital letter")
        field.type = model.TYPE_GROUP
        field.type_name = name
        field.name = name.lower()
        self._number_and_options(field)
        group = messages.add(name=name)
        self._message_body(group)

    def _map(self, field: Message, message: Message) -> None:
        tokens = self._tokens
        tokens.advance()
        tokens.expect("<")
        entry = model.DescriptorProto()
        entry.options.map_entry = True
        key = entry.field.add(name="key", number=1, label=model.LABEL_OPTIONAL)
        self._type(key)
        tokens.expect(",")
        value = entry.field.add(name="value", number=2, label=model.LABEL_OPTIONAL)
        self._type(value)
        tokens.expect(">")
        field.label = model.LABEL_REPEATED
        self._name_number_and_options(field)
        tokens.expect(";")
        entry.name = model.map_entry_name(field.name)
        field.type_name = entry.name
        for option in field.options.uninterpreted_option:
            if [part.name_part for part in option.name] == ["features", "utf8_validation"]:
                for part in (key, value):
                    if part.type == model.TYPE_STRING:
                        part.options.uninterpreted_option.append(option)
        message.nested_type.append(entry)

    def _oneof(self, message: Message) -> None:
        tokens = self._tokens
        tokens.advance()
        index = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=tokens.name("the name of a oneof"))
        tokens.expect("{")
        while not tokens.accept("}"):
            if tokens.looking_at("option"):
                self._option_statement(oneof.options)
                continue
            if tokens.kind == "name" and tokens.text in _LABELS:
                tokens.fail("a field in a oneof has no label")
            if tokens.looking_at("map") and tokens.follows("<"):
                tokens.fail("a map cannot be in a oneof")
            if tokens.kind != "name" and not tokens.looking_at("."):
                tokens.expected("a field or a closing brace")
            field = message.field.add(label=model.LABEL_OPTIONAL, oneof_index=index)
            self._field_of_type(field, message.nested_type)

    def _extend(self, extensions: Message, messages: Message) -> None:
        tokens = self._tokens
        tokens.advance()
        extendee = self._type_name()
        tokens.expect("{")
        is_empty = True
        while not tokens.accept("}"):
            self._field(extensions.add(extendee=extendee), messages, None)
            is_empty = False
        if is_empty:
            tokens.fail(f"extend {extendee} declares no field")

    def _extensions(self, message: Message) -> None:
        tokens = self._tokens
        tokens.advance()
        first = len(message.extension_range)
        self._ranges(message.extension_range.add)
        if tokens.looking_at("["):
            options = message.extension_range[first].options
            self._bracketed(lambda: self._option(options))
            others = message.extension_range[first + 1 :]
            if len(others) * options.ByteSize() > limits.TEXT_BYTES_MAX:
                tokens.fail(f"{len(others)} extension ranges are too many for options of this size")
            for each in others:
                each.options.CopyFrom(options)
        tokens.expect(";")

    def _message_reserved(self, message: Message) -> None:
        self._tokens.advance()
        if not self._reserved_names(message.reserved_name):
            self._ranges(message.reserved_range.add)
        self._tokens.expect(";")

    def _reserved_names(self, names: Message) -> bool:
        """Whether there are names, rather than numbers."""
        tokens = self._tokens
        kind = "name" if self._syntax == "editions" else "string"
        if tokens.kind not in ("name", "string"):
            return False
        while True:
            if tokens.kind != kind:
                tokens.expected("a name without quotes" if kind == "name" else "a name in quotes")
            names.append(tokens.name() if kind == "name" else tokens.utf8())
            if not tokens.accept(","):
                return True

    def _ranges(self, add: Callable[..., Message]) -> None:
        """Numbers of fields: the end is exclusive, and -1 for `max`."""
        tokens = self._tokens
        while True:
            start = tokens.integer(model.INT32_MAX - 1, "a field number")
            end = start
            if tokens.accept("to"):
                end = -2 if tokens.accept("max") else tokens.integer(model.INT32_MAX - 1, "a field number")
            add(start=start, end=end + 1)
            if not tokens.accept(","):
                return

    def _enum(self, enum: Message) -> None:
        tokens = self._tokens
        tokens.advance()
        enum.name = tokens.name("the name of an enum")
        tokens.expect("{")
        while not tokens.accept("}"):
            if tokens.accept(";"):
                continue
            if tokens.looking_at("option"):
                self._option_statement(enum.options)
            elif tokens.looking_at("reserved"):
                self._enum_reserved(enum)
            else:
                self._enum_value(enum.value.add())

    def _enum_value(self, value: Message) -> None:
        tokens = self._tokens
        value.name = tokens.name("the name of a constant")
        tokens.expect("=")
        value.number = tokens.signed_integer(model.INT32_MAX)
        if tokens.looking_at("["):
            self._bracketed(lambda: self._option(value.options))
        tokens.expect(";")

    def _enum_reserved(self, enum: Message) -> None:
        """Numbers of constants: the end is inclusive."""
        tokens = self._tokens
        tokens.advance()
        if not self._reserved_names(enum.reserved_name):
            while True:
                start = end = tokens.signed_integer(model.INT32_MAX)
                if tokens.accept("to"):
                    has_no_end = tokens.accept("max")
                    end = model.INT32_MAX if has_no_end else tokens.signed_integer(model.INT32_MAX)
                enum.reserved_range.add(start=start, end=end)
                if not tokens.accept(","):
                    break
        tokens.expect(";")

    def _service(self, service: Message) -> None:
        tokens = self._tokens
        tokens.advance()
        service.name = tokens.name("the name of a service")
        statements = {
            "option": lambda: self._option_statement(service.options),
            "rpc": lambda: self._method(service.method.add()),
        }
        tokens.expect("{")
        while not tokens.accept("}"):
            self._statement(statements, "rpc, option or a closing brace")

    def _method(self, method: Message) -> None:
        tokens = self._tokens
        tokens.advance()
        method.name = tokens.name("the name of a method")
        tokens.expect("(")
        if tokens.accept("stream"):
            method.client_streaming = True
        method.input_type = self._type_name()
        tokens.expect(")")
        tokens.expect("returns")
        tokens.expect("(")
        if tokens.accept("stream"):
            method.server_streaming = True
        method.output_type = self._type_name()
        tokens.expect(")")
        if not tokens.accept("{"):
            tokens.expect(";")
            return
        statements = {"option": lambda: self._option_statement(method.options)}
        while not tokens.accept("}"):
            self._statement(statements, "option or a closing brace")

    def _option_statement(self, options: Message) -> None:
        self._tokens.advance()
        self._option(options)
        self._tokens.expect(";")

    def _bracketed(self, option: Callable[[], None]) -> None:
        self._tokens.expect("[")
        option()
        while self._tokens.accept(","):
            option()
        self._tokens.expect("]")

    def _field_options(self, field: Message) -> None:
        """The options of a field; `default` and `json_name` look like options, but are not."""
        tokens = self._tokens

        def option() -> None:
            if tokens.looking_at("default") and tokens.follows("="):
                if field.HasField("default_value"):
                    tokens.fail("default is set twice")
                tokens.advance()
                tokens.advance()
                field.default_value = self._default(field)
            elif tokens.looking_at("json_name") and tokens.follows("="):
                if field.HasField("json_name"):
                    tokens.fail("json_name is set twice")
                tokens.advance()
                tokens.advance()
                field.json_name = tokens.utf8()
            else:
                self._option(field.options)

        self._bracketed(option)

    def _default(self, field: Message) -> str:
        tokens = self._tokens
        kind = field.type
        if not field.HasField("type"):
            return tokens.name("the name of a constant")
        if bits := model.INTEGER_BITS.get(kind):
            limit = 2**bits - 1
            return str(tokens.signed_integer(limit) if bits % 2 else tokens.integer(limit))
        if kind in (model.TYPE_FLOAT, model.TYPE_DOUBLE):
            sign = -1 if tokens.accept("-") else 1
            return float_literal(sign * tokens.number(), is_double=kind == model.TYPE_DOUBLE)
        if kind == model.TYPE_BOOL:
            if tokens.text not in ("true", "false"):
                tokens.expected("true or false")
            return tokens.advance()
        if kind == model.TYPE_STRING:
            return tokens.utf8()
        if kind == model.TYPE_BYTES:
            return bytes_literal(tokens.string())
        tokens.fail("a message has no default")

    def _option(self, options: Message) -> None:
        tokens = self._tokens
        option = options.uninterpreted_option.add()
        while True:
            if len(option.name) == limits.NESTING_MAX:
                tokens.fail(f"the name of an option has more than {limits.NESTING_MAX} parts")
            is_extension = tokens.accept("(")
            name = self._type_name() if is_extension else tokens.name("the name of an option")
            option.name.add(name_part=name, is_extension=is_extension)
            if is_extension:
                tokens.expect(")")
            if not tokens.accept("."):
                break
        tokens.expect("=")
        self._option_value(option)

    def _option_value(self, option: Message) -> None:
        tokens = self._tokens
        if tokens.looking_at("{"):
            option.aggregate_value = self.aggregate()
            return
        if tokens.kind == "string":
            option.string_value = tokens.string()
            return
        is_negative = tokens.accept("-")
        if tokens.kind == "name" and not is_negative:
            option.identifier_value = tokens.advance()
        elif tokens.kind == "integer" and is_negative:
            option.negative_int_value = -tokens.integer(2**63)
        elif tokens.kind == "integer":
            option.positive_int_value = tokens.integer(2**64 - 1)
        elif tokens.kind == "float" or tokens.text in ("inf", "nan"):
            option.double_value = -tokens.number() if is_negative else tokens.number()
        else:
            tokens.expected("the value of an option")

    def aggregate(self) -> str:
        """A value in braces, as the text between them."""
        tokens = self._tokens
        tokens.advance()
        parts: list[str] = []
        depth = 1
        while depth:
            if tokens.kind == "end":
                tokens.expected("a closing brace")
            if tokens.kind != "string":
                depth += (tokens.text in ("{", "<")) - (tokens.text in ("}", ">"))
            if depth > limits.NESTING_MAX:
                tokens.fail(f"the value of an option is nested more than {limits.NESTING_MAX} deep")
            # A sign has to stay with its number.
            parts.append(tokens.text if tokens.looking_at("-") else f"{tokens.text} ")
            tokens.advance()
        return "".join(parts[:-1])


def _add_synthetic_oneofs(message: Message) -> None:
    """A field with `optional` in proto3 is alone in a oneof, after all that are declared."""
    optional = [field for field in message.field if field.proto3_optional]
    if not optional:
        return
    names = {each.name for each in (*message.field, *message.oneof_decl)}
    for field in optional:
        name = field.name if field.name.startswith("_") else f"_{field.name}"
        while name in names:
            name = f"X{name}"
        names.add(name)
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=name)
