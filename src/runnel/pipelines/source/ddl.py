"""Parses types in SQL syntax without a Spark session: `id BIGINT, lines ARRAY<STRUCT<name: STRING>>`."""

import re
from collections.abc import Mapping

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

PRECISION_DEFAULT = 10

_SIMPLE: Mapping[str, DataType] = {
    "BOOLEAN": BooleanType(),
    "BYTE": ByteType(),
    "TINYINT": ByteType(),
    "SHORT": ShortType(),
    "SMALLINT": ShortType(),
    "INT": IntegerType(),
    "INTEGER": IntegerType(),
    "LONG": LongType(),
    "BIGINT": LongType(),
    "FLOAT": FloatType(),
    "REAL": FloatType(),
    "DOUBLE": DoubleType(),
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "DATE": DateType(),
    "TIMESTAMP": TimestampType(),
    "TIMESTAMP_LTZ": TimestampType(),
    "TIMESTAMP_NTZ": TimestampNTZType(),
}
_NESTED = ("ARRAY", "MAP", "STRUCT")
_DECIMAL = ("DECIMAL", "DEC", "NUMERIC")
_TOKEN = re.compile(r"`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|[^\w\s]")


class BadType(ValueError):
    """The text is not a type."""


def parse_type(text: str) -> DataType:
    """A type, or the fields of a struct; BadType if it is neither."""
    reader = _Reader(text)
    first, second = reader.peek().upper(), reader.peek(1)
    is_type = second == "<" if first in _NESTED else second in ("", "(")
    kind = reader.type() if is_type else reader.fields("")
    if reader.peek():
        raise reader.unexpected("the end")
    return kind


class _Reader:
    """A recursive-descent parser of types."""

    def __init__(self, text: str) -> None:
        self._tokens = [(match.group(), match.start()) for match in _TOKEN.finditer(text)]
        self._next = 0

    def peek(self, ahead: int = 0) -> str:
        """A token ahead; empty at the end."""
        index = self._next + ahead
        return self._tokens[index][0] if index < len(self._tokens) else ""

    def unexpected(self, wanted: str) -> BadType:
        if not self.peek():
            return BadType(f"the text ends where {wanted} is expected")
        token, position = self._tokens[self._next]
        return BadType(f"{token!r} at character {position + 1}, where {wanted} is expected")

    def take(self, token: str) -> None:
        if self.peek().upper() != token:
            raise self.unexpected(repr(token))
        self._next += 1

    def took(self, token: str) -> bool:
        if self.peek().upper() != token:
            return False
        self._next += 1
        return True

    def type(self) -> DataType:
        name = self.peek().upper()
        if name not in _SIMPLE and name not in _NESTED and name not in _DECIMAL:
            raise self.unexpected("a type, such as BIGINT or STRING,")
        self._next += 1
        if name in _SIMPLE:
            return _SIMPLE[name]
        if name in _DECIMAL:
            return self._decimal()
        self.take("<")
        match name:
            case "ARRAY":
                kind: DataType = ArrayType(self.type())
            case "MAP":
                key = self.type()
                self.take(",")
                kind = MapType(key, self.type())
            case _:
                kind = StructType([]) if self.peek() == ">" else self.fields(">")
        self.take(">")
        return kind

    def fields(self, end: str) -> StructType:
        """Names and types up to `end`."""
        found = [self._field()]
        while self.peek() != end:
            if not self.took(","):
                raise self.unexpected(f"',' or {end!r}" if end else "','")
            found.append(self._field())
        return StructType(found)

    def _field(self) -> StructField:
        name = self.peek()
        if not re.fullmatch(r"`.+`|\w+", name, re.DOTALL):
            raise self.unexpected("the name of a field")
        self._next += 1
        self.took(":")
        kind = self.type()
        # A value may lack the field, so the column stays nullable.
        if self.took("NOT"):
            self.take("NULL")
        if self.took("COMMENT"):
            if self.peek()[:1] not in ("'", '"'):
                raise self.unexpected("a comment in quotes")
            self._next += 1
        return StructField(name[1:-1].replace("``", "`") if name.startswith("`") else name, kind)

    def _decimal(self) -> DecimalType:
        if not self.took("("):
            return DecimalType(PRECISION_DEFAULT, 0)
        precision = self._number()
        scale = self._number() if self.took(",") else 0
        self.take(")")
        if not 0 <= scale <= precision <= 38:
            raise BadType(
                f"DECIMAL({precision}, {scale}) is invalid: at most 38 digits, of which some are fractional"
            )
        return DecimalType(precision, scale)

    def _number(self) -> int:
        if not self.peek().isdecimal():
            raise self.unexpected("a number")
        self._next += 1
        return int(self._tokens[self._next - 1][0])
