"""Schemas that a schema of a registry refers to."""

from collections.abc import Mapping, Sequence
from typing import Any

from runnel.client.schema_registry import SchemaRegistry
from runnel.registry.format import InvalidSchema, ReferencedSchema
from runnel.registry.limits import REFERENCES_MAX


def referenced_schemas(
    registry: SchemaRegistry, references: Sequence[Mapping[str, Any]]
) -> list[ReferencedSchema]:
    """All of them, transitively, dependencies first. Raises InvalidSchema if they are too many."""
    found: dict[tuple[str, int], ReferencedSchema] = {}
    _collect(registry, references, found, set())
    return list(found.values())


def _collect(
    registry: SchemaRegistry,
    references: Sequence[Mapping[str, Any]],
    found: dict[tuple[str, int], ReferencedSchema],
    entered: set[tuple[str, int]],
) -> None:
    for reference in references:
        target = reference["subject"], reference["version"]
        if target in entered:
            continue
        entered.add(target)
        if len(entered) > REFERENCES_MAX:
            raise InvalidSchema(f"it has more than {REFERENCES_MAX} references")
        version = registry.version(target[0], str(target[1]), deleted=True)
        _collect(registry, version.get("references") or [], found, entered)
        found[target] = ReferencedSchema(reference["name"], version["schema"])
