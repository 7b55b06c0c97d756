"""A schema in one vocabulary, that of 2020-12, whichever draft it was written in.

A schema is a conjunction. `parts` divides it into schemas of one kind each: its own assertions (`base`),
each combination (`allOf`, `anyOf`, `oneOf`), `not`, `if`, what it refers to, and what its unevaluated
keywords demand of the rest. Data of a writer is valid for a reader if it is valid for each part of the
reader; to show that, one part of the writer suffices.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Literal, TypeAlias

from runnel.registry.json_schema.json_text import Json, Number


class Draft(IntEnum):
    """The drafts of JSON Schema, in order."""

    DRAFT_04 = 4
    DRAFT_06 = 6
    DRAFT_07 = 7
    DRAFT_2019_09 = 8
    DRAFT_2020_12 = 9


TYPES = {
    "null": frozenset({"null"}),
    "boolean": frozenset({"boolean"}),
    "object": frozenset({"object"}),
    "array": frozenset({"array"}),
    "string": frozenset({"string"}),
    "integer": frozenset({"integer"}),
    "number": frozenset({"integer", "fraction"}),
}
"""Types as disjoint sets of values: a number is an integer or has a fraction."""

ANY_TYPE = frozenset[str]().union(*TYPES.values())

Kind: TypeAlias = Literal["base", "allOf", "anyOf", "oneOf", "not", "if", "unevaluated", "several"]
COMBINATIONS: tuple[Kind, ...] = ("allOf", "anyOf", "oneOf")

_SINGLE = (
    "items",
    "contains",
    "unevaluated_items",
    "additional_properties",
    "unevaluated_properties",
    "property_names",
    "negated",
    "target",
)


@dataclass(slots=True, eq=False, kw_only=True)
class Conditional:
    """`if`, `then` and `else`; None accepts everything."""

    condition: "Schema"
    then: "Schema | None"
    otherwise: "Schema | None"


@dataclass(slots=True, eq=False, kw_only=True)
class Schema:
    """One subschema. Schemas that it contains are resolved: none of them is only a `$ref`."""

    draft: Draft
    location: tuple[str, ...]
    """The document's name and the way from its root, which versions of a schema share."""
    raw: Json
    rejects_all: bool = False
    annotations: dict[str, str] | None = None
    """Canonical values of id, title, description and default; None for a part, which has none."""

    types: frozenset[str] = ANY_TYPE
    type_names: tuple[str, ...] = ()
    values: frozenset[str] | None = None
    """Canonical texts of the values that enum and const allow."""
    values_types: frozenset[str] = ANY_TYPE
    bounds: dict[str, Number] = field(default_factory=dict)
    """By keyword: maximum, maxLength and all others that limit from one side."""
    multiple_of: Number | None = None
    pattern: str | None = None

    prefix_items: list["Schema"] = field(default_factory=list)
    items: "Schema | None" = None
    items_keyword: str = "items"
    unique_items: bool = False
    contains: "Schema | None" = None
    contains_min: Number = 1
    contains_max: Number | None = None
    unevaluated_items: "Schema | None" = None

    properties: dict[str, "Schema"] = field(default_factory=dict)
    pattern_properties: dict[str, "Schema"] = field(default_factory=dict)
    additional_properties: "Schema | None" = None
    additional_keyword: str = "additionalProperties"
    unevaluated_properties: "Schema | None" = None
    required: frozenset[str] = frozenset()
    defaults: dict[str, "Schema"] = field(default_factory=dict)
    """Defaults of the properties that have one, each as a schema of this value."""
    property_names: "Schema | None" = None
    dependent_required: dict[str, frozenset[str]] = field(default_factory=dict)
    dependent_schemas: dict[str, "Schema"] = field(default_factory=dict)

    combinations: dict[Kind, list["Schema"]] = field(default_factory=dict)
    negated: "Schema | None" = None
    conditional: Conditional | None = None
    reference: str | None = None
    target: "Schema | None" = None

    domain: frozenset[str] = ANY_TYPE
    """Of a part: the types that the schema it belongs to allows."""
    owner: "Schema | None" = None
    """Of a part: the schema it belongs to."""
    parts: tuple["Schema", ...] = ()
    """None accepts everything."""
    kind: Kind = "several"

    def in_place(self) -> Iterator["Schema"]:
        """Schemas that are applied to the same value as this one."""
        if self.target is not None:
            yield self.target
        for branches in self.combinations.values():
            yield from branches
        if self.negated is not None:
            yield self.negated
        if self.conditional is not None:
            choices = (self.conditional.condition, self.conditional.then, self.conditional.otherwise)
            yield from (choice for choice in choices if choice is not None)
        yield from self.dependent_schemas.values()

    def below(self) -> Iterator["Schema"]:
        """Schemas that are applied to items, properties and names of properties."""
        yield from self.prefix_items
        yield from self.properties.values()
        yield from self.pattern_properties.values()
        for name in _SINGLE[:-2]:
            child = getattr(self, name)
            if child is not None:
                yield child

    def rewire(self, resolve: Callable[["Schema"], "Schema"]) -> None:
        """Replace each schema that this one contains."""
        self.prefix_items = [resolve(child) for child in self.prefix_items]
        for children in (self.properties, self.pattern_properties, self.dependent_schemas):
            children.update({name: resolve(child) for name, child in children.items()})
        for branches in self.combinations.values():
            branches[:] = [resolve(branch) for branch in branches]
        for name in _SINGLE:
            child = getattr(self, name)
            if child is not None:
                setattr(self, name, resolve(child))
        if self.conditional is not None:
            choice = self.conditional
            choice.condition = resolve(choice.condition)
            choice.then = resolve(choice.then) if choice.then else None
            choice.otherwise = resolve(choice.otherwise) if choice.otherwise else None

    def is_reference(self) -> bool:
        """Whether it adds nothing to what it refers to."""
        return self.target is not None and not any(True for _ in self._kinds())

    def combination(self) -> list["Schema"]:
        """The branches of a part that is a combination."""
        return self.combinations[self.kind]

    def accepts_all(self) -> bool:
        return not self.parts and not self.rejects_all

    def divide(self) -> None:
        """Set `parts` and `kind`, once everything it refers to is known."""
        if self.rejects_all:
            return
        self._settle_unevaluated()
        kinds = list(self._kinds())
        if len(kinds) == 1 and self.target is None:
            self.kind, self.parts = kinds[0], (self,)
            return
        self.parts = tuple(self._part(kind) for kind in kinds)
        if self.target is not None:
            self.parts += (self.target,)

    def _settle_unevaluated(self) -> None:
        """Without schemas applied in place, unevaluated means additional."""
        applied = any(True for _ in self.in_place())
        if self.additional_properties is not None:
            self.unevaluated_properties = None
        elif not applied and self.unevaluated_properties is not None:
            self.additional_properties, self.unevaluated_properties = self.unevaluated_properties, None
            self.additional_keyword = "unevaluatedProperties"
        contains_evaluates = self.contains is not None and self.draft >= Draft.DRAFT_2020_12
        if self.items is not None:
            self.unevaluated_items = None
        elif not applied and not contains_evaluates and self.unevaluated_items is not None:
            self.items, self.unevaluated_items = self.unevaluated_items, None
            self.items_keyword = "unevaluatedItems"

    def _kinds(self) -> Iterator[Kind]:
        if self._has_assertions():
            yield "base"
        yield from self.combinations
        if self.negated is not None:
            yield "not"
        if self.conditional is not None:
            yield "if"
        if self.unevaluated_properties is not None or self.unevaluated_items is not None:
            yield "unevaluated"

    def _part(self, kind: Kind) -> "Schema":
        if kind == "base":
            part = replace(
                self,
                annotations=None,
                combinations={},
                negated=None,
                conditional=None,
                target=None,
                kind=kind,
            )
        else:
            part = Schema(draft=self.draft, location=self.location, raw=self.raw, kind=kind)
        if kind in self.combinations:
            part.combinations = {kind: self.combinations[kind]}
        elif kind == "not":
            part.negated = self.negated
        elif kind == "if":
            part.conditional = self.conditional
        part.domain = self.types & self.values_types
        part.owner = self
        part.parts = (part,)
        return part

    def _has_assertions(self) -> bool:
        return bool(
            self.types != ANY_TYPE
            or self.values is not None
            or self.bounds
            or self.multiple_of is not None
            or self.pattern is not None
            or self.prefix_items
            or self.items is not None
            or self.unique_items
            or self.contains is not None
            or self.properties
            or self.pattern_properties
            or self.additional_properties is not None
            or self.required
            or self.property_names is not None
            or self.dependent_required
            or self.dependent_schemas
        )


ANYTHING = Schema(draft=Draft.DRAFT_2020_12, location=("",), raw=True)
NOTHING = Schema(draft=Draft.DRAFT_2020_12, location=("",), raw=False, rejects_all=True)
