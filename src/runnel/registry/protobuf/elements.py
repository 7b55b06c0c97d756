"""The elements of a file, with the full name of each."""

from dataclasses import dataclass, field

from runnel.registry.format import InvalidSchema
from runnel.registry.protobuf import limits
from runnel.registry.protobuf.literals import shortened
from runnel.registry.protobuf.model import Message

Named = list[tuple[str, Message]]
"""Elements with their full names."""


def full_name(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def check_length(name: str) -> None:
    """Raise InvalidSchema if a full name is too long."""
    if len(name) > limits.NAME_CHARACTERS_MAX:
        raise InvalidSchema(
            f"the name {shortened(name)} has more than {limits.NAME_CHARACTERS_MAX} characters"
        )


@dataclass(slots=True)
class Elements:
    """All elements of a file by their kind, found in one walk. Raises InvalidSchema if names are too long."""

    file: Message
    messages: Named = field(default_factory=list)
    """Nested ones after the one that they are in."""
    fields: Named = field(default_factory=list)
    """Of messages, without extensions."""
    extensions: Named = field(default_factory=list)
    oneofs: Named = field(default_factory=list)
    enums: Named = field(default_factory=list)
    values: Named = field(default_factory=list)
    """Constants of enums, with the names that they have below their enum."""
    services: Named = field(default_factory=list)
    methods: Named = field(default_factory=list)

    def __post_init__(self) -> None:
        file = self.file
        check_length(file.package)
        self._add_scope(file.package, file)
        pending = [(file.package, message) for message in reversed(file.message_type)]
        while pending:
            scope, message = pending.pop()
            name = self._scope(scope, message)
            self.messages.append((name, message))
            self.fields += [(f"{name}.{each.name}", each) for each in message.field]
            self.oneofs += [(f"{name}.{each.name}", each) for each in message.oneof_decl]
            self._add_scope(name, message)
            pending += [(name, nested) for nested in reversed(message.nested_type)]
        for service in file.service:
            name = self._scope(file.package, service)
            self.services.append((name, service))
            self.methods += [(f"{name}.{method.name}", method) for method in service.method]

    def _scope(self, parent: str, container: Message) -> str:
        """The full name of an element that has others. It is part of their names, and must not be long."""
        name = full_name(parent, container.name)
        check_length(name)
        return name

    def _add_scope(self, scope: str, container: Message) -> None:
        self.extensions += [(full_name(scope, each.name), each) for each in container.extension]
        for enum in container.enum_type:
            name = self._scope(scope, enum)
            self.enums.append((name, enum))
            self.values += [(f"{name}.{value.name}", value) for value in enum.value]

    def all_fields(self) -> Named:
        return self.fields + self.extensions

    def with_options(self) -> Named:
        """All elements that have options, with the scope in which the names of these are resolved."""
        ranges = [(name, each) for name, message in self.messages for each in message.extension_range]
        kinds = (
            [(full_name(self.file.package, "(file)"), self.file)],
            self.messages, self.fields, self.extensions, self.oneofs, ranges,
            self.enums, self.values, self.services, self.methods,
        )  # fmt: skip
        return [(scope, each) for kind in kinds for scope, each in kind if each.HasField("options")]
