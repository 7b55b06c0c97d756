"""Keys and values that are encoded with schemas of a registry."""

import asyncio
import math
import time
from collections import OrderedDict
from dataclasses import dataclass

from runnel.client.schema_references import referenced_schemas
from runnel.client.schema_registry import RegistryRefused, SchemaRegistry
from runnel.registry.codecs import Codec, parsed_codec
from runnel.registry.format import AVRO, JSON, PROTOBUF, InvalidData, InvalidSchema
from runnel.registry.framing import framed, unframed
from runnel.server.cli.output import CommandError
from runnel.server.cli.records import Formatted, WrittenWith
from runnel.server.cli.schema_options import FieldOptions, Format, FormatOptions

TYPES = {Format.AVRO: AVRO, Format.PROTOBUF: PROTOBUF, Format.JSON_SCHEMA: JSON}
"""The registry's names of formats."""

SCHEMAS_MAX = 200
"""Schemas that are cached: the records of a topic usually have few."""

MISSING_S = 5.0
"""How long the absence of a schema is cached."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema of a registry."""

    id: int
    type: str
    codec: Codec


@dataclass(frozen=True, slots=True)
class _Unusable:
    """Why there is no schema."""

    reason: str
    until_s: float
    """When the registry is queried for it again."""


class Schemas:
    """Schemas by their ids, each fetched once. Requests block, so they run in a thread."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self.registry = registry
        self._known: OrderedDict[int, Schema | _Unusable] = OrderedDict()

    async def find(self, schema_id: int, wanted: Format) -> Schema:
        """A schema. Raises InvalidData if it is not known, or not of the format."""
        found = self._known.get(schema_id)
        if found is None or (isinstance(found, _Unusable) and found.until_s <= time.monotonic()):
            found = await asyncio.to_thread(self._fetch, schema_id)
            self._known[schema_id] = found
            if len(self._known) > SCHEMAS_MAX:
                self._known.popitem(last=False)
        if isinstance(found, _Unusable):
            raise InvalidData(found.reason)
        if wanted is not Format.AUTO and found.type != TYPES[wanted]:
            raise InvalidData(f"schema {schema_id} is of type {found.type}, not {TYPES[wanted]}")
        return found

    def _fetch(self, schema_id: int) -> "Schema | _Unusable":
        try:
            found = self.registry.by_id(schema_id)
            kind = found.get("schemaType", AVRO)
            references = referenced_schemas(self.registry, found.get("references") or [])
            codec = parsed_codec(kind, found["schema"], references)
        except RegistryRefused as refused:
            if refused.status != 404:
                raise
            reason = f"the registry has no schema {schema_id}: {refused}"
            return _Unusable(reason, time.monotonic() + MISSING_S)
        except InvalidSchema as invalid:
            return _Unusable(f"schema {schema_id} cannot be used: {invalid}", math.inf)
        return Schema(schema_id, kind, codec)


class FieldDecoder:
    """Decodes the keys or the values of records."""

    def __init__(self, schemas: Schemas, wanted: Format) -> None:
        self._schemas = schemas
        self._format = wanted

    async def decode(self, data: bytes | None) -> Formatted | bytes | None:
        """With `auto`, what cannot be decoded is returned as it is. Otherwise raises InvalidData."""
        if data is None:
            return None
        try:
            schema_id, payload = unframed(data)
            schema = await self._schemas.find(schema_id, self._format)
            decoded = schema.codec.decode(payload)
            return Formatted(decoded.value, schema_id, decoded.message)
        except InvalidData:
            if self._format is Format.AUTO:
                return data
            raise


class FieldEncoder:
    """Encodes the keys or the values of records for one topic."""

    def __init__(self, schemas: Schemas, options: FieldOptions, topic: str, *, registers: bool) -> None:
        assert options.format is not None
        self._schemas = schemas
        self._options = options
        self._format = options.format
        self._subject = options.subject or f"{topic}-{options.name}"
        self._registers = registers
        self._chosen: Schema | None = None

    async def encode(self, text: bytes | None, written_with: WrittenWith | None) -> bytes | None:
        """Encode JSON; with `auto`, what names no schema is returned as it is. Raises InvalidData."""
        if text is None or (self._format is Format.AUTO and written_with is None):
            return text
        if written_with is not None and not self._options.names_schema:
            schema = await self._schemas.find(written_with.schema_id, self._format)
        else:
            schema = await self.choose()
        message = self._options.message or (written_with.message if written_with is not None else None)
        try:
            decoded = text.decode()
        except UnicodeDecodeError:
            raise InvalidData("it is not UTF-8") from None
        try:
            data = schema.codec.encode(decoded, message)
        except InvalidData as misfit:
            raise InvalidData(f"it does not fit schema {schema.id}: {misfit}") from None
        return framed(schema.id, data)

    async def choose(self) -> Schema:
        """The schema that options name, or the latest of the default subject."""
        if self._chosen is None:
            schema_id = await asyncio.to_thread(self._find_id)
            try:
                self._chosen = await self._schemas.find(schema_id, self._format)
            except InvalidData as problem:
                raise CommandError(f"{self._options.name}s cannot be encoded: {problem}") from None
        return self._chosen

    def _find_id(self) -> int:
        registry, file = self._schemas.registry, self._options.schema
        if file is None:
            return int(registry.version(self._subject, self._options.version or "latest")["id"])
        from runnel.server.cli.schema import read_schema

        schema = {"schema": read_schema(file), "schemaType": TYPES[self._format]}
        found = (registry.register if self._registers else registry.look_up)(self._subject, schema)
        return int(found["id"])


def decoders(options: FormatOptions) -> tuple[FieldDecoder | None, FieldDecoder | None]:
    """Those of keys and of values; None for those that are not encoded with schemas."""
    schemas = _schemas(options)
    key, value = (
        None if field.format is None else FieldDecoder(schemas, field.format)
        for field in (options.key, options.value)
    )
    return key, value


async def encoders(
    options: FormatOptions, topic: str, *, as_json: bool
) -> tuple[FieldEncoder | None, FieldEncoder | None]:
    """Those of keys and of values. A missing schema is an error now, unless lines may name schemas."""
    schemas = _schemas(options)
    key, value = (
        None if field.format is None else FieldEncoder(schemas, field, topic, registers=options.registers)
        for field in (options.key, options.value)
    )
    for encoder, field in ((key, options.key), (value, options.value)):
        if encoder is not None and (field.names_schema or not as_json):
            await encoder.choose()
    return key, value


def _schemas(options: FormatOptions) -> Schemas:
    return Schemas(SchemaRegistry(options.registry, options.user))
