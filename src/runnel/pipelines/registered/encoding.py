"""Encodes a column as values with a schema of a registry."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from runnel.pipelines.errors import BadOption, PipelineError
from runnel.pipelines.registered.decoding import reader_schema
from runnel.pipelines.registered.options import ValueOptions
from runnel.pipelines.registered.schemas import RegisteredSchema, Schemas
from runnel.pipelines.registered.shapes import shape_of
from runnel.registry.codecs import codec_of
from runnel.registry.format import InvalidData
from runnel.registry.framing import framed

EARLIER_VERSIONS_MAX = 10
"""Versions before the latest one that are tried."""

Encode = Callable[[Any], bytes]


class RegisteredEncoder:
    """Encodes JSON text, or values of other types, with the latest version of a subject that they fit.

    Spark plans each batch of a stream separately, and with it the latest version is looked up: rows that do
    not fit a version that was registered while the query runs are still written with the previous one.
    """

    def __init__(self, options: ValueOptions) -> None:
        self._options = options
        self._latest = reader_schema(options)
        self._encoders: dict[tuple[int, bool], Encode] = {}
        self._tried: list[RegisteredSchema] | None = None

    def encode(self, column: Any) -> Any:
        """The framed values of a column, as Arrow binary. Raises PipelineError if one does not fit."""
        is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        values = column.to_pylist(maps_as_pydicts="lossy")
        return pa.array([None if one is None else self._framed(one, is_text) for one in values], pa.binary())

    def _framed(self, value: Any, is_text: bool) -> bytes:
        try:
            return self._with(self._latest, value, is_text)
        except InvalidData as error:
            misfit = error
        for schema in self._earlier():
            try:
                return self._with(schema, value, is_text)
            except (InvalidData, BadOption):
                continue
        raise PipelineError(
            f"a value cannot be encoded: it does not fit {self._options.subject}, "
            f"schema {self._latest.id}: {misfit}"
        )

    def _with(self, schema: RegisteredSchema, value: Any, is_text: bool) -> bytes:
        encode = self._encoders.get((schema.id, is_text))
        if encode is None:
            encode = self._encoders[schema.id, is_text] = self._encoder(schema, is_text)
        return framed(schema.id, encode(value))

    def _encoder(self, schema: RegisteredSchema, is_text: bool) -> Encode:
        message = self._options.message
        if not is_text:
            return shape_of(schema, message).encode
        codec = codec_of(schema.type, schema.parsed())
        return lambda text: codec.encode(text, message)

    def _earlier(self) -> list[RegisteredSchema]:
        if self._tried is None:
            self._tried = list(self._find_earlier()) if self._options.version == "latest" else []
        return self._tried

    def _find_earlier(self) -> Iterator[RegisteredSchema]:
        schemas = Schemas(self._options.url, self._options.user, self._options.wait_s)
        for version in schemas.versions(self._options.subject)[: EARLIER_VERSIONS_MAX + 1]:
            found = schemas.of_subject(self._options.subject, str(version))
            if found.id != self._latest.id and found.type == self._options.type:
                yield found
