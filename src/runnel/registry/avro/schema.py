"""Avro as a format of the registry."""

from collections.abc import Sequence
from functools import cached_property

from runnel.registry.avro.compatibility import incompatibilities
from runnel.registry.avro.limits import TEXTS_CHARACTERS_MAX
from runnel.registry.avro.model import Schema
from runnel.registry.avro.parser import Parser
from runnel.registry.avro.printer import normalized, printed
from runnel.registry.format import Incompatibility, InvalidSchema, ReferencedSchema


class AvroSchema:
    """A schema in Avro's model."""

    def __init__(self, schema: Schema, known: frozenset[str]) -> None:
        self.schema = schema
        self._known = known
        """Names that referenced schemas define."""

    @cached_property
    def text(self) -> str:
        """As Java's library prints it, which is what Confluent's registry stores."""
        return printed(self.schema, self._known)

    @cached_property
    def identity(self) -> str:
        """The normalized text: equal for texts that mean the same."""
        return normalized(self.schema, self._known)

    def normalized(self) -> str:
        """Full names, properties sorted."""
        return self.identity

    def formatted(self, name: str) -> str:
        """`resolved`: with the definitions of referenced schemas."""
        if name != "resolved":
            return self.text
        try:
            return printed(self.schema)
        except RecursionError:
            raise InvalidSchema("the schema is nested too deeply with all that it refers to") from None

    def incompatibilities(self, writer: "AvroSchema") -> list[Incompatibility]:
        """Why data of `writer` cannot be read with this schema."""
        return incompatibilities(self.schema, writer.schema)


class AvroFormat:
    """Parses Avro schemas."""

    def __init__(self, *, is_strict: bool) -> None:
        self._is_strict = is_strict

    def parse(self, text: str, references: Sequence[ReferencedSchema] = ()) -> AvroSchema:
        """Parse a text; types of the references may be used by their names. Raises InvalidSchema."""
        parser = Parser(is_strict=self._is_strict)
        if sum(len(reference.text) for reference in references) > TEXTS_CHARACTERS_MAX:
            raise InvalidSchema(f"the references have more than {TEXTS_CHARACTERS_MAX} characters")
        for reference in references:
            parser.parse(reference.text)
        known = frozenset(parser.names)
        return AvroSchema(parser.parse(text), known)
