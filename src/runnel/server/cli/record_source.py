"""The records that `runnel produce` sends."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runnel.registry.format import InvalidData
from runnel.server.cli.lines import lines_of_input
from runnel.server.cli.output import CommandError
from runnel.server.cli.records import ProducerRecord, WrittenWith, from_json, from_line
from runnel.server.cli.schema_options import FormatOptions

if TYPE_CHECKING:
    from runnel.server.cli.formats import FieldEncoder


@dataclass(slots=True)
class RecordSource:
    """The records of arguments, or of the lines of standard input."""

    values: list[str] | None
    as_json: bool
    separator: bytes | None
    key: str | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None
    formats: FormatOptions
    _key_encoder: "FieldEncoder | None" = field(default=None, init=False)
    _value_encoder: "FieldEncoder | None" = field(default=None, init=False)

    async def prepare(self, topic: str) -> None:
        """Find the schemas that options name."""
        if self.formats.key.format is self.formats.value.format is None:
            return
        from runnel.server.cli.formats import encoders

        self._key_encoder, self._value_encoder = await encoders(self.formats, topic, as_json=self.as_json)

    async def records(self) -> AsyncIterator[ProducerRecord]:
        """Each record as soon as its line is read; the first one that is invalid ends it with an error."""
        number = 0
        async for line in _argument_lines(self.values) if self.values else lines_of_input():
            number += 1
            record = self._parsed(line)
            if self.key is not None:
                record.key, record.key_schema = self.key.encode("utf-8", "surrogateescape"), None
            record.headers += self.headers
            record.partition = self.partition if self.partition is not None else record.partition
            if self._key_encoder is not None:
                record.key = await _encoded(self._key_encoder, record.key, record.key_schema, "key", number)
            if self._value_encoder is not None:
                encoder, schema = self._value_encoder, record.value_schema
                record.value = await _encoded(encoder, record.value, schema, "value", number)
            yield record

    def _parsed(self, line: bytes) -> ProducerRecord:
        if not self.as_json:
            return from_line(line, self.separator)
        key, value = self.formats.key.format, self.formats.value.format
        return from_json(line, key_format=key, value_format=value)


async def _encoded(
    encoder: "FieldEncoder", text: bytes | None, schema: WrittenWith | None, name: str, number: int
) -> bytes | None:
    try:
        return await encoder.encode(text, schema)
    except InvalidData as problem:
        raise CommandError(f"line {number}: the {name} cannot be encoded: {problem}") from None


async def _argument_lines(values: list[str]) -> AsyncIterator[bytes]:
    for value in values:
        yield value.encode("utf-8", "surrogateescape")
