"""Fetches schemas of a registry."""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from runnel.client.errors import ClientError
from runnel.client.references import resolved
from runnel.client.schema_references import referenced_schemas
from runnel.client.schema_registry import RegistryRefused, RegistryUnavailable, SchemaRegistry
from runnel.pipelines.errors import BadOption, SchemaUnavailable
from runnel.registry.codecs import parsed
from runnel.registry.format import AVRO, InvalidSchema, ParsedSchema, ReferencedSchema

T = TypeVar("T")

SCHEMAS_MAX = 1000
"""Schemas that a process keeps. Those of an id never change, and workers of Spark run many tasks."""
PAUSE_S = 0.5

_known: "OrderedDict[tuple[str, int], RegisteredSchema]" = OrderedDict()


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema, with all it refers to."""

    id: int
    type: str
    text: str
    references: tuple[ReferencedSchema, ...] = ()

    def parsed(self) -> ParsedSchema:
        """The schema. Raises InvalidSchema."""
        return parsed(self.type, self.text, self.references)


class Schemas:
    """Schemas of one registry. Requests are repeated while it does not respond."""

    def __init__(self, url: str, user: str | None, wait_s: float) -> None:
        self._url = url
        self._wait_s = wait_s
        try:
            self._registry = SchemaRegistry(url, user and resolved(user, "schemaRegistry.user"))
        except ClientError as error:
            raise BadOption(str(error)) from None

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        """A schema; None if the registry does not have it, or what it refers to.

        Raises InvalidSchema, SchemaUnavailable.
        """
        known = _known.get((self._url, schema_id))
        if known is not None:
            return known
        try:
            return self._complete(schema_id, self._asked(lambda registry: registry.by_id(schema_id)))
        except RegistryRefused:
            return None

    def of_subject(self, subject: str, version: str) -> RegisteredSchema:
        """A version of a subject. Raises BadOption, SchemaUnavailable."""
        try:
            found = self._asked(lambda registry: registry.version(subject, version))
            return self._complete(int(found["id"]), found)
        except RegistryRefused as refused:
            raise BadOption(f"{subject}, version {version}, is not registered: {refused}") from None
        except InvalidSchema as error:
            raise BadOption(f"the schema of {subject} cannot be used: {error}") from None

    def versions(self, subject: str) -> list[int]:
        """The versions of a subject, the latest one first. Raises SchemaUnavailable."""
        try:
            return sorted(self._asked(lambda registry: registry.versions(subject)), reverse=True)
        except RegistryRefused:
            return []

    def _complete(self, schema_id: int, found: Mapping[str, Any]) -> RegisteredSchema:
        references = found.get("references") or []
        collected = self._asked(lambda registry: referenced_schemas(registry, references))
        schema = RegisteredSchema(
            schema_id, found.get("schemaType") or AVRO, found["schema"], tuple(collected)
        )
        _known[self._url, schema_id] = schema
        if len(_known) > SCHEMAS_MAX:
            _known.popitem(last=False)
        return schema

    def _asked(self, ask: Callable[[SchemaRegistry], T]) -> T:
        """An answer of the registry. Raises RegistryRefused for what it does not have, SchemaUnavailable."""
        deadline_s = time.monotonic() + self._wait_s
        while True:
            try:
                return ask(self._registry)
            except RegistryRefused as refused:
                if refused.status == 404:
                    raise
                if refused.status < 500 or time.monotonic() > deadline_s:
                    raise SchemaUnavailable(
                        f"the registry {self._url} refuses a request: {refused}"
                    ) from None
            except RegistryUnavailable as error:
                if time.monotonic() > deadline_s:
                    raise SchemaUnavailable(str(error)) from None
            time.sleep(PAUSE_S)
