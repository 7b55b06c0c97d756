"""Rules for objects: properties by the content model, requirements, dependencies.

A property that a schema does not name is subject to its patterns, else to its additional properties. An
object without either is *open*: its writer may have written anything there, so that a reader that adds a
property may find it with another type. A *closed* object has no further properties, a *partially open* one
those that match.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple

from runnel.registry.json_schema.further import compare_further
from runnel.registry.json_schema.paths import clipped
from runnel.registry.json_schema.patterns import matches
from runnel.registry.json_schema.proofs import Evaluated, Proofs
from runnel.registry.json_schema.report import Pair, Report, Result, Rule
from runnel.registry.json_schema.schema import ANYTHING, Draft, Schema

_STEPS_PER_MATCH = 4
"""Trying a pattern takes as long as some steps, as it may have to be compiled."""


def compare_objects(report: Report, proofs: Proofs, writer: Schema, reader: Schema) -> Rule:
    """Compare what two schemas demand of an object, except its number of properties."""
    contents = _Contents(report, proofs, writer, reader)
    report.budget.charge(len(writer.properties) + len(reader.properties))
    for name in writer.properties | reader.properties:
        yield from contents.compare_property(name)
    yield from contents.compare_patterns()
    yield from contents.compare_further()
    yield from _compare_required(report, writer, reader)
    _compare_dependent_required(report, writer, reader)
    yield from _compare_dependent_schemas(report, writer, reader)
    yield from _compare_names(report, writer, reader)


@dataclass(slots=True)
class _Contents:
    """The content models of a writer and a reader."""

    report: Report
    proofs: Proofs
    writer: Schema
    reader: Schema

    def compare_property(self, name: str) -> Rule:
        theirs, mine = self.writer.properties.get(name), self.reader.properties.get(name)
        if theirs is not None and mine is not None:
            self.report.nest((yield self.report.pair(theirs, mine)), "properties", name)
            yield from self._compare_matched(name, theirs)
        elif theirs is not None:
            yield from self._property_removed(name, theirs)
        elif mine is not None:
            yield from self._property_added(name, mine)
            yield from self._compare_matched(name, None)

    def _compare_matched(self, name: str, theirs: Schema | None) -> Rule:
        """The reader's patterns that match a property which it also names."""
        matched = self._matched(self.reader, name)
        for pattern, mine in (matched.certain | matched.uncertain).items():
            if pattern in self.writer.pattern_properties:
                continue  # the two patterns are compared
            if theirs is None:
                candidates = self._by_writer(name) or [ANYTHING]
            else:
                candidates = [theirs, *self._matched(self.writer, name).certain.values()]
            result = yield from self._valid(candidates, mine)
            if not result.compatible:
                self.report.nest(result, "properties", name)

    def _property_removed(self, name: str, theirs: Schema) -> Rule:
        path = ("properties", name)
        demands = self._by_reader(name)
        if not demands:
            reason = "the reader does not name it, and accepts any further properties"
            self.report.add("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL", reason, *path)
        candidates = [theirs, *self._matched(self.writer, name).certain.values()] if demands else []
        for mine in demands:
            result = yield from self._valid(candidates, mine)
            if mine.rejects_all and theirs.rejects_all:
                kind = "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL"
                reason = "neither accepts it"
            elif mine.rejects_all:
                kind = "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"
                reason = "the reader does not name it, and accepts no further properties"
            elif result.compatible:
                kind = "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
                reason = "the reader does not name it, and accepts it as a further property"
            else:
                kind = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
                reason = "the reader does not name it, and does not accept all its values all the same"
            if not mine.rejects_all:
                self.report.nest(result, *path)
            self.report.add(kind, reason, *path)

    def _valid(self, candidates: list[Schema], mine: Schema) -> Generator[Pair, Result, Result]:
        """The result of the first candidate that is valid for the reader, else of the first."""
        first = None
        for theirs in candidates:
            result = yield self.report.pair(theirs, mine)
            if result.compatible:
                return result
            first = first or result
        assert first is not None
        return first

    def _property_added(self, name: str, mine: Schema) -> Rule:
        path = ("properties", name)
        written = self._by_writer(name)
        if not written:
            yield from self._property_added_to_open(name, mine)
            return
        if not written[0].rejects_all:
            result = yield from self._valid(written, mine)
            self.report.nest(result, *path)
            if result.compatible:
                reason = "the writer does not name it, and what it may write there is valid"
                self.report.add("PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", reason, *path)
            else:
                reason = "the writer does not name it, and may write a further property that is not valid"
                self.report.add("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", reason, *path)
        if not self._requires(name):
            reason = "the reader adds it as an optional property"
            self.report.add("OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", reason, *path)
        elif (yield from _has_default(self.reader, name)):
            reason = "the reader adds it as a required property with a default"
            self.report.add("REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL", reason, *path)
        else:
            reason = "the reader adds it as a required property without a default, the writer may omit it"
            self.report.add("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", reason, *path)

    def _property_added_to_open(self, name: str, mine: Schema) -> Rule:
        path = ("properties", name)
        open_writer = "the writer does not name it, but accepts any further properties"
        filled = yield from _has_default(self.reader, name)
        if self._requires(name) and not filled:
            reason = f"the reader adds it as a required property without a default; {open_writer}"
            self.report.add("REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", reason, *path)
        elif mine.accepts_all():
            reason = "the reader adds it and accepts any value"
            self.report.add("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", reason, *path)
            if self._requires(name):
                reason = "the reader requires it and has a default"
                self.report.add("REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED", reason, "required", name)
        elif self._requires(name):
            reason = f"the reader adds it as a required property with a default; {open_writer}"
            self.report.add("REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL", reason, *path)
        else:
            reason = f"the reader adds it as an optional property; {open_writer}, with other values"
            self.report.add("OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", reason, *path)

    def compare_patterns(self) -> Rule:
        """Names that neither schema has in `properties`, and that match a pattern of one."""
        rest = self._writer_rest()
        for pattern, mine in self.reader.pattern_properties.items():
            path = ("patternProperties", pattern)
            same = self.writer.pattern_properties.get(pattern)
            if same is not None:
                self.report.nest((yield self.report.pair(same, mine)), *path)
                continue
            if rest.accepts_all():
                if not mine.accepts_all():
                    reason = "the reader restricts names that match it, the writer accepts anything there"
                    self.report.add("OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", reason, *path)
                continue
            # A name that matches may match any of the writer's patterns as well.
            for theirs in (rest, *self.writer.pattern_properties.values()):
                yield from self._compare_added_pattern(theirs, mine, path)
        for pattern, theirs in self.writer.pattern_properties.items():
            if pattern not in self.reader.pattern_properties:
                yield from self._pattern_removed(pattern, theirs)

    def _compare_added_pattern(self, theirs: Schema, mine: Schema, path: tuple[str, str]) -> Rule:
        result = yield self.report.pair(theirs, mine)
        if not result.compatible:
            self.report.nest(result, *path)
            reason = "the writer may write properties that match it and are not valid"
            self.report.add("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", reason, *path)

    def _pattern_removed(self, pattern: str, theirs: Schema) -> Rule:
        path = ("patternProperties", pattern)
        rest = self.reader.additional_properties or ANYTHING
        if rest.accepts_all():
            reason = "the reader does not have this pattern, and accepts any further properties"
            self.report.add("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL", reason, *path)
        elif rest.rejects_all and not theirs.rejects_all:
            reason = "the reader does not have this pattern, and accepts no further properties"
            self.report.add("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", reason, *path)
        else:
            result = yield self.report.pair(theirs, rest)
            self.report.nest(result, *path)

    def compare_further(self) -> Rule:
        """Names that neither schema has, and that match no pattern."""
        theirs, mine = self._writer_rest(), self.reader.additional_properties or ANYTHING
        path = (self.reader if self.reader.additional_properties else self.writer).additional_keyword
        prefix = "UNEVALUATED_PROPERTIES" if path == "unevaluatedProperties" else "ADDITIONAL_PROPERTIES"
        yield from compare_further(self.report, theirs, mine, prefix, path)

    def _requires(self, name: str) -> bool:
        return name in self.reader.required and name not in self.writer.required

    def _by_reader(self, name: str) -> list[Schema]:
        """What the reader demands of a property that it does not name; empty if it accepts anything."""
        matched = self._matched(self.reader, name)
        rest = self.reader.additional_properties or ANYTHING
        demands = [*matched.certain.values(), *matched.uncertain.values()]
        return demands if matched.certain or rest.accepts_all() else [*demands, rest]

    def _by_writer(self, name: str) -> list[Schema]:
        """What values of a property that the writer does not name satisfy; empty if they may be anything."""
        matched = self._matched(self.writer, name)
        if matched.certain or matched.uncertain:
            return list(matched.certain.values())
        rest = self.writer.additional_properties or ANYTHING
        unevaluated = self._unevaluated()
        if unevaluated is not None:
            schema, evaluated = unevaluated
            if name not in evaluated.names and not evaluated.patterns and not evaluated.everything:
                rest = schema
        return [] if rest.accepts_all() else [rest]

    def _writer_rest(self) -> Schema:
        """What applies to properties that the writer neither names nor has a pattern for."""
        unevaluated = self._unevaluated()
        if unevaluated is not None:
            schema, evaluated = unevaluated
            named = evaluated.names <= self.writer.properties.keys()
            matched = evaluated.patterns <= self.writer.pattern_properties.keys()
            if named and matched and not evaluated.everything:
                return schema
        return self.writer.additional_properties or ANYTHING

    def _unevaluated(self) -> tuple[Schema, Evaluated] | None:
        """What the writer demands of unevaluated properties, and which ones it may evaluate."""
        owner = self.writer.owner
        if owner is None or owner.unevaluated_properties is None:
            return None
        return owner.unevaluated_properties, self.proofs.evaluated(owner, certain=False)

    def _matched(self, schema: Schema, name: str) -> "_Matched":
        self.report.budget.charge(_STEPS_PER_MATCH * len(schema.pattern_properties))
        found = _Matched({}, {})
        for pattern, child in schema.pattern_properties.items():
            matched = matches(pattern, name)
            if matched is not False:
                (found.uncertain if matched is None else found.certain)[pattern] = child
        return found


class _Matched(NamedTuple):
    """The patterns that match a name, and those of which that is not known."""

    certain: dict[str, Schema]
    uncertain: dict[str, Schema]


def _has_default(schema: Schema, name: str) -> Generator[Pair, Result, bool]:
    """Whether a property has a default that is valid, and that makes nothing else invalid."""
    if name not in schema.defaults or name not in schema.properties:
        return False
    limited = "maxProperties" in schema.bounds or schema.property_names is not None
    consequential = name in schema.dependent_required or name in schema.dependent_schemas
    beside = {part.kind for part in schema.owner.parts} if schema.owner is not None else set()
    if limited or consequential or beside & {"oneOf", "not", "if"}:
        return False
    return (yield Pair(schema.defaults[name], schema.properties[name], True)).compatible


def _compare_required(report: Report, writer: Schema, reader: Schema) -> Rule:
    report.budget.charge((len(writer.required) + len(reader.required)) // 4)
    for name in sorted(reader.required - writer.required):
        if name in reader.properties and name not in writer.properties:
            continue  # reported as a property that was added
        if (yield from _has_default(reader, name)):
            reason = "the reader requires it and has a default, the writer may omit it"
            report.add("REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED", reason, "required", name)
        else:
            reason = "the reader requires it and has no default, the writer may omit it"
            report.add("REQUIRED_ATTRIBUTE_ADDED", reason, "required", name)
    for name in sorted(writer.required - reader.required):
        if name in reader.properties:
            report.add("REQUIRED_ATTRIBUTE_REMOVED", "the reader does not require it", "required", name)


def _compare_dependent_required(report: Report, writer: Schema, reader: Schema) -> None:
    keyword = "dependentRequired" if reader.draft >= Draft.DRAFT_2019_09 else "dependencies"
    for name in writer.dependent_required | reader.dependent_required:
        theirs = writer.dependent_required.get(name)
        mine = reader.dependent_required.get(name)
        path = (keyword, name)
        report.budget.charge(len(theirs or ()) + len(mine or ()))
        if mine == theirs:
            continue
        if mine is None:
            report.add("DEPENDENCY_ARRAY_REMOVED", "the reader demands no other properties with it", *path)
            continue
        missing = sorted(mine - writer.required - (theirs or frozenset()))
        names = ", ".join(clipped(other) for other in missing[:3])
        reason = f'with "{clipped(name)}", the reader demands {names}, which the writer may omit'
        if not missing:
            report.add("DEPENDENCY_ARRAY_NARROWED", "the writer demands all that the reader does", *path)
        elif theirs is None:
            report.add("DEPENDENCY_ARRAY_ADDED", reason, *path)
        else:
            kind = "DEPENDENCY_ARRAY_EXTENDED" if mine > theirs else "DEPENDENCY_ARRAY_CHANGED"
            report.add(kind, reason, *path)


def _compare_dependent_schemas(report: Report, writer: Schema, reader: Schema) -> Rule:
    keyword = "dependentSchemas" if reader.draft >= Draft.DRAFT_2019_09 else "dependencies"
    for name in writer.dependent_schemas | reader.dependent_schemas:
        theirs, mine = writer.dependent_schemas.get(name), reader.dependent_schemas.get(name)
        if mine is None:
            report.add("DEPENDENCY_SCHEMA_REMOVED", "the reader demands nothing with it", keyword, name)
        elif theirs is not None:
            report.nest((yield report.pair(theirs, mine)), keyword, name)
        elif not mine.accepts_all():
            reason = f'the reader has a schema for objects with "{clipped(name)}", the writer none'
            report.add("DEPENDENCY_SCHEMA_ADDED", reason, keyword, name)


def _compare_names(report: Report, writer: Schema, reader: Schema) -> Rule:
    theirs, mine = writer.property_names, reader.property_names
    if mine is None or mine.accepts_all():
        if theirs is not None:
            report.add("SCHEMA_REMOVED", "the reader accepts any names of properties", "propertyNames")
    elif theirs is None:
        report.add("SCHEMA_ADDED", "the reader restricts the names of properties", "propertyNames")
    else:
        report.nest((yield report.pair(theirs, mine)), "propertyNames")
