"""What can be proved of schemas without comparing them: types, exclusion, evaluated properties.

Each answer errs on the safe side: types are those that may occur, and schemas exclude each other only if
that is certain.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from runnel.registry.json_schema import limits
from runnel.registry.json_schema.json_text import Number
from runnel.registry.json_schema.report import Budget
from runnel.registry.json_schema.schema import ANY_TYPE, TYPES, Schema

_COUNTED = {
    frozenset({"string"}): ("maxLength", "minLength"),
    frozenset({"array"}): ("maxItems", "minItems"),
    frozenset({"object"}): ("maxProperties", "minProperties"),
}


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Properties that a schema evaluates, so that unevaluatedProperties does not apply to them."""

    names: frozenset[str] = frozenset()
    patterns: frozenset[str] = frozenset()
    everything: bool = False

    def __or__(self, other: "Evaluated") -> "Evaluated":
        return Evaluated(
            self.names | other.names, self.patterns | other.patterns, self.everything or other.everything
        )


class Proofs:
    """Remembers what it found, for one comparison."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._types: dict[Schema, frozenset[str]] = {}
        self._disjoint: dict[tuple[Schema, Schema, frozenset[str]], bool] = {}
        self._evaluated: dict[tuple[Schema, bool], Evaluated] = {}

    def types(self, schema: Schema, depth: int = 0) -> frozenset[str]:
        """The types that its values may have."""
        known = self._types.get(schema)
        if known is not None:
            return known
        if schema.rejects_all:
            return frozenset()
        if depth > limits.PROOF_DEPTH_MAX:
            return ANY_TYPE
        self._budget.charge()
        found = schema.types & schema.values_types & schema.domain
        if schema.target is not None:
            found &= self.types(schema.target, depth + 1)
        for kind, branches in schema.combinations.items():
            each = [self.types(branch, depth + 1) for branch in branches]
            found &= ANY_TYPE.intersection(*each) if kind == "allOf" else frozenset[str]().union(*each)
        self._types[schema] = found
        return found

    def disjoint(self, one: Schema, other: Schema, domain: frozenset[str] = ANY_TYPE, depth: int = 0) -> bool:
        """Whether no value of the types in `domain` is valid for both."""
        shared = self.types(one) & self.types(other) & domain
        if not shared:
            return True
        if depth > limits.PROOF_DEPTH_MAX:
            return False
        key = (one, other, shared)
        if key not in self._disjoint:
            self._budget.charge()
            self._disjoint[key] = (
                self._divided(one, other, shared, depth + 1)
                or self._divided(other, one, shared, depth + 1)
                or (
                    one.kind == other.kind == "base"
                    and self._assertions_exclude(one, other, shared, depth + 1)
                )
            )
        return self._disjoint[key]

    def _divided(self, one: Schema, other: Schema, shared: frozenset[str], depth: int) -> bool:
        """Whether the parts or branches of one exclude the other."""
        if len(one.parts) > 1:
            return any(self.disjoint(part, other, shared, depth) for part in one.parts)
        if one.kind == "allOf":
            return any(self.disjoint(branch, other, shared, depth) for branch in one.combination())
        if one.kind in ("anyOf", "oneOf"):
            return all(self.disjoint(branch, other, shared, depth) for branch in one.combination())
        return False

    def _assertions_exclude(self, one: Schema, other: Schema, shared: frozenset[str], depth: int) -> bool:
        if one.values is not None and other.values is not None and not one.values & other.values:
            return True
        if shared == TYPES["object"] and self._properties_exclude(one, other, depth):
            return True
        if shared <= TYPES["number"]:
            return _below(_upper_bound(one), _lower_bound(other)) or _below(
                _upper_bound(other), _lower_bound(one)
            )
        if shared in _COUNTED:
            most, least = _COUNTED[shared]
            return any(
                most in below.bounds and least in above.bounds and below.bounds[most] < above.bounds[least]
                for below, above in ((one, other), (other, one))
            )
        return False

    def _properties_exclude(self, one: Schema, other: Schema, depth: int) -> bool:
        """Whether a property that one of them requires cannot be valid for both."""
        for name in one.required | other.required:
            self._budget.charge()
            first, second = one.properties.get(name), other.properties.get(name)
            if first is not None and second is not None and self.disjoint(first, second, ANY_TYPE, depth):
                return True
            if (name in one.required and _forbids(other, name)) or (
                name in other.required and _forbids(one, name)
            ):
                return True
        return False

    def evaluated(self, schema: Schema, certain: bool) -> Evaluated:
        """The properties that it evaluates in every case, or those that it may evaluate."""
        key = (schema, certain)
        if key not in self._evaluated:
            self._evaluated[key] = self._evaluates(schema, certain, 0)
        return self._evaluated[key]

    def _evaluates(self, schema: Schema, certain: bool, depth: int) -> Evaluated:
        if depth > limits.PROOF_DEPTH_MAX:
            return Evaluated(everything=not certain)
        self._budget.charge(1 + len(schema.properties) + len(schema.pattern_properties))
        everything = schema.additional_properties is not None
        if depth > 0 and schema.unevaluated_properties is not None:
            everything = True
        found = Evaluated(frozenset(schema.properties), frozenset(schema.pattern_properties), everything)
        for child in _certainly_applied(schema) if certain else schema.in_place():
            found |= self._evaluates(child, certain, depth + 1)
        return found


def _certainly_applied(schema: Schema) -> Iterator[Schema]:
    if schema.target is not None:
        yield schema.target
    yield from schema.combinations.get("allOf", ())


def _forbids(schema: Schema, name: str) -> bool:
    if name in schema.properties:
        return schema.properties[name].rejects_all
    additional = schema.additional_properties
    return additional is not None and additional.rejects_all and not schema.pattern_properties


def _upper_bound(schema: Schema) -> tuple[Number, bool] | None:
    """The largest number, and whether it is excluded."""
    found = [
        (schema.bounds[key], exclusive)
        for key, exclusive in (("exclusiveMaximum", True), ("maximum", False))
        if key in schema.bounds
    ]
    return min(found, key=lambda bound: bound[0], default=None)


def _lower_bound(schema: Schema) -> tuple[Number, bool] | None:
    found = [
        (schema.bounds[key], exclusive)
        for key, exclusive in (("exclusiveMinimum", True), ("minimum", False))
        if key in schema.bounds
    ]
    return max(found, key=lambda bound: bound[0], default=None)


def _below(upper: tuple[Number, bool] | None, lower: tuple[Number, bool] | None) -> bool:
    if upper is None or lower is None:
        return False
    return upper[0] < lower[0] or (upper[0] == lower[0] and (upper[1] or lower[1]))
