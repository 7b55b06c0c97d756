"""JSON Schema, Draft-04 to 2020-12: parsing, text forms, compatibility as Confluent's registry names it.

`FORMAT.parse` turns a text into a `JsonSchema` (parser.py, with keywords.py, documents.py and linking.py,
into schema.py). `differences` compares two (comparison.py, by the rules in rules.py and the modules it
names).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from runnel.registry.format import Incompatibility, ReferencedSchema
from runnel.registry.json_schema import json_text, limits, parser
from runnel.registry.json_schema.comparison import Differences, compare
from runnel.registry.json_schema.kinds import Policy
from runnel.registry.json_schema.report import Difference, TooCostly
from runnel.registry.json_schema.schema import Schema

__all__ = ["FORMAT", "Difference", "Differences", "JsonSchema", "Policy", "TooCostly", "differences"]


@dataclass(frozen=True, slots=True, eq=False)
class JsonSchema:
    """A JSON schema with all it refers to."""

    text: str
    identity: str
    root: Schema
    references: tuple[ReferencedSchema, ...]

    def normalized(self) -> str:
        return self.identity

    def formatted(self, name: str) -> str:
        """JSON Schema has no other formats; Confluent's registry ignores unknown ones, too."""
        return self.text

    def incompatibilities(self, writer: "JsonSchema") -> list[Incompatibility]:
        """Under the policy STRICT. Raises TooCostly."""
        found = differences(reader=self, writer=writer)
        return [
            Incompatibility(difference.kind, difference.path, difference.message)
            for difference in found.incompatible
        ]


class _JsonSchemaFormat:
    def parse(self, text: str, references: Sequence[ReferencedSchema] = ()) -> JsonSchema:
        value = json_text.parse(text)
        identity = json_text.canonical(value)
        return JsonSchema(
            json_text.compact(text), identity, parser.parse(value, references), tuple(references)
        )


FORMAT = _JsonSchemaFormat()


def differences(
    *,
    reader: JsonSchema,
    writer: JsonSchema,
    policy: Policy = Policy.STRICT,
    steps_max: int = limits.STEPS_MAX,
) -> Differences:
    """What changed from the writer's schema to the reader's. Raises TooCostly."""
    if reader.identity == writer.identity and set(reader.references) == set(writer.references):
        return Differences((), (), 0)
    return compare(reader=reader.root, writer=writer.root, policy=policy, steps_max=steps_max)
