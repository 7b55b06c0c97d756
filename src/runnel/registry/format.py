"""What a schema format provides: parsing, text forms, and whether a reader can read what a writer wrote."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

Parsed = TypeVar("Parsed", bound="ParsedSchema")

AVRO = "AVRO"
JSON = "JSON"
PROTOBUF = "PROTOBUF"


class InvalidSchema(Exception):
    """A text is not a schema of its format; the message says what is wrong and where."""


class InvalidData(Exception):
    """A message does not fit its schema, or is too large; the message says what is wrong and where."""


@dataclass(frozen=True, slots=True)
class ReferencedSchema:
    """The text of a schema that another one refers to, and the name by which it does."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One reason why a reader cannot read what a writer wrote."""

    kind: str
    """Its name as clients of Confluent's registry know it, such as READER_FIELD_MISSING_DEFAULT_VALUE."""
    path: str
    """Where it is in the reader's schema, such as /fields/2/type."""
    message: str
    """Which field, and why, in a sentence."""


class ParsedSchema(Protocol):
    """A schema that was parsed, with all it refers to."""

    @property
    def text(self) -> str:
        """The text that is stored and returned."""

    @property
    def identity(self) -> str:
        """Equal for texts that are equivalent in their format, however they are printed."""

    def normalized(self) -> str:
        """The text of `normalize=true`."""

    def formatted(self, name: str) -> str:
        """The text in a format that a request names, such as `serialized`; else the stored one."""

    def incompatibilities(self: Parsed, writer: Parsed) -> list[Incompatibility]:
        """Why data of `writer` cannot be read with this schema; empty if all can."""


class SchemaFormat(Protocol):
    """AVRO, JSON or PROTOBUF."""

    def parse(self, text: str, references: Sequence[ReferencedSchema] = ()) -> ParsedSchema:
        """Parse a text. `references` are transitive, dependencies first. Raises InvalidSchema."""
