"""What follows once all schemas are built: resolving references, refusing loops, dividing into parts."""

from collections.abc import Iterator

from runnel.registry.json_schema.documents import invalid
from runnel.registry.json_schema.literals import Literals
from runnel.registry.json_schema.schema import Schema

_REFERENCES_FOLLOWED = 16


def link(root: Schema, schemas: list[Schema]) -> Schema:
    """Link all schemas; the root, resolved. Raises InvalidSchema."""
    resolved = _resolved(schemas)
    literals = Literals()
    for schema in schemas:
        schema.defaults = dict(_defaults(schema, literals))
    for schema in schemas:
        schema.rewire(lambda child: resolved.get(child, child))
    _refuse_loops(schemas)
    for schema in schemas:
        schema.divide()
    return resolved.get(root, root)


def _resolved(schemas: list[Schema]) -> dict[Schema, Schema]:
    """Schemas that are only a reference, and what they lead to."""
    found: dict[Schema, Schema] = {}
    for schema in schemas:
        chain: dict[Schema, None] = {}
        while schema.is_reference() and schema not in found:
            assert schema.target is not None
            if schema in chain:
                raise invalid(schema.location, "This $ref leads back to itself.")
            chain[schema] = None
            schema = schema.target
        end = found.get(schema, schema)
        found.update(dict.fromkeys(chain, end))
    return found


def _defaults(schema: Schema, literals: Literals) -> Iterator[tuple[str, Schema]]:
    """The default of a property is its own, or that of what it refers to."""
    for name, child in schema.properties.items():
        holder: Schema | None = child
        for _ in range(_REFERENCES_FOLLOWED):
            if holder is None:
                break
            if holder.annotations and "DEFAULT" in holder.annotations and isinstance(holder.raw, dict):
                default = literals.of(holder.raw["default"])
                if default is not None:
                    yield name, default
                break
            holder = holder.target


def _refuse_loops(schemas: list[Schema]) -> None:
    """A schema that applies itself to the same value never ends."""
    finished: set[Schema] = set()
    for start in schemas:
        path: dict[Schema, Iterator[Schema]] = {} if start in finished else {start: start.in_place()}
        while path:
            schema, rest = next(reversed(path.items()))
            following = next(rest, None)
            if following is None:
                del path[schema]
                finished.add(schema)
            elif following in path:
                raise invalid(following.location, "This schema applies itself to the same value without end.")
            elif following not in finished:
                path[following] = following.in_place()
