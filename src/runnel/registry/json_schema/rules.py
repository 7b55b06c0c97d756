"""The rules for a pair of schemas, by the kind of the reader's part."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

from runnel.registry.json_schema.assertions import compare_assertions
from runnel.registry.json_schema.combinations import compare_combinations
from runnel.registry.json_schema.keywords import type_of_text
from runnel.registry.json_schema.proofs import Proofs
from runnel.registry.json_schema.report import Pair, Report, Result, Rule
from runnel.registry.json_schema.schema import COMBINATIONS, TYPES, Kind, Schema
from runnel.registry.json_schema.unevaluated import compare_unevaluated

_SUMS: tuple[Kind, ...] = ("anyOf", "oneOf")


def compare_schemas(report: Report, proofs: Proofs, writer: Schema, reader: Schema) -> Rule:
    """Compare two schemas; each part of the reader must accept all values of the writer."""
    _compare_annotations(report, writer, reader)
    if writer is reader or reader.accepts_all() or writer.rejects_all:
        return
    if reader.rejects_all:
        report.add("TYPE_CHANGED", "the reader accepts no value")
        return
    if len(reader.parts) == 1:
        yield from _RULES[reader.kind](report, proofs, writer, reader)
        return
    for part in reader.parts:
        report.nest((yield report.pair(writer, part)))
    if len(writer.parts) > len(reader.parts):
        report.add("PRODUCT_TYPE_NARROWED", "the reader demands less")


def _compare_annotations(report: Report, writer: Schema, reader: Schema) -> None:
    if writer.annotations is None or reader.annotations is None:
        return
    for name in ("ID", "TITLE", "DESCRIPTION", "DEFAULT"):
        if writer.annotations.get(name) != reader.annotations.get(name):
            report.add(f"{name}_CHANGED", f"{name.lower()} changed")


def _compare_base(report: Report, proofs: Proofs, writer: Schema, reader: Schema) -> Rule:
    if len(writer.parts) > 1:
        yield from _compare_best_part(report, writer, reader)
    elif writer.kind == "allOf":
        yield from _compare_product(report, writer, reader)
    elif writer.kind in _SUMS:
        yield from _compare_sum(report, writer, reader)
    else:
        # What `not` and `if` exclude is not used: the writer may write more than it does.
        yield from compare_assertions(report, proofs, writer, reader)


def _compare_best_part(report: Report, writer: Schema, reader: Schema) -> Rule:
    """One part of the writer suffices, most likely the one of the same kind; its differences are reported."""
    first: Result | None = None
    for part in sorted(writer.parts, key=lambda part: part.kind != reader.kind):
        result = yield report.pair(part, reader)
        if result.compatible:
            report.nest(result)
            return
        first = first or result
    assert first is not None
    report.nest(first)


def _compare_product(report: Report, writer: Schema, reader: Schema) -> Rule:
    """One branch of an allOf suffices."""
    branches = writer.combination()
    result = Result()
    for branch in branches:
        result = yield report.pair(branch, reader)
        if result.compatible:
            break
    if result.compatible and len(branches) > 1:
        report.nest(result)
        report.add(
            "PRODUCT_TYPE_NARROWED", f"the writer has an allOf with {len(branches)} branches, the reader none"
        )
    elif len(branches) == 1:
        report.nest(result)
    else:
        report.add("TYPE_CHANGED", "no branch of the writer's allOf satisfies the reader")


def _compare_sum(report: Report, writer: Schema, reader: Schema) -> Rule:
    """All branches of an anyOf or oneOf must be valid."""
    branches = writer.combination()
    for index, branch in enumerate(branches):
        result = yield report.pair(branch, reader)
        if len(branches) == 1:
            report.nest(result)
            return
        if not result.compatible:
            reason = f"the reader does not accept branch {index} of the writer's {writer.kind}"
            report.add("TYPE_CHANGED", f"{reason}: {result.breaking[0].reason}")
            return
        report.nest(result)
    report.add("COMBINED_TYPE_EXTENDED", f"the reader accepts all branches of the writer's {writer.kind}")


def _compare_all_of(report: Report, proofs: Proofs, writer: Schema, reader: Schema) -> Rule:
    if writer.kind == "allOf":
        yield from compare_combinations(report, proofs, writer, reader)
        return
    if (yield from _compare_same_kind(report, writer, reader)):
        return
    results = []
    for branch in reader.combination():
        results.append((yield report.pair(writer, branch)))
    valid = all(result.compatible for result in results)
    if writer.kind in _SUMS and not valid:
        report.add(
            "COMBINED_TYPE_CHANGED", f"the writer has {writer.kind}, the reader allOf, which demands more"
        )
        return
    if writer.kind in _SUMS:
        report.add("COMBINED_TYPE_EXTENDED", f"{writer.kind} became allOf")
    single = len(results) == 1
    for index, result in enumerate(results):
        report.nest(result, *(() if single else ("allOf", str(index))))


def _compare_same_kind(report: Report, writer: Schema, reader: Schema) -> Generator[Pair, Result, bool]:
    """Whether a part of the writer that is of the reader's kind, or the other kind of sum, suffices."""
    if len(writer.parts) < 2:
        return False
    kinds = _SUMS if reader.kind in _SUMS else (reader.kind,)
    candidates = [part for part in writer.parts if part.kind in kinds]
    for part in sorted(candidates, key=lambda part: part.kind != reader.kind):
        result = yield report.pair(part, reader)
        if result.compatible:
            report.nest(result)
            return True
    return False


def _compare_any_of(report: Report, proofs: Proofs, writer: Schema, reader: Schema) -> Rule:
    """Rules for anyOf and oneOf."""
    if len(writer.parts) == 1 and writer.kind in COMBINATIONS:
        yield from compare_combinations(report, proofs, writer, reader)
        return
    if (yield from _compare_same_kind(report, writer, reader)):
        return
    branches = reader.combination()
    if len(branches) == 1:
        report.nest((yield report.pair(writer, branches[0])))
        return
    accepted = yield from _accepting_branch(report, proofs, writer, reader)
    if accepted is not None:
        report.nest(accepted)
        report.add("SUM_TYPE_EXTENDED", f"the reader accepts further branches of {reader.kind}")
        return
    variants = list(_variants(writer))
    for variant in variants:
        if (yield from _accepting_branch(report, proofs, variant, reader)) is None:
            break
    else:
        if variants:
            report.add("COMBINED_TYPE_EXTENDED", f"the types of the writer became {reader.kind}")
            return
    if len(writer.parts) > 1:
        yield from _compare_best_part(report, writer, reader)
    else:
        reason = f"no branch of the reader's {reader.kind} accepts all values of the writer"
        report.add("TYPE_CHANGED", reason + (", or more than one may" if reader.kind == "oneOf" else ""))


def _accepting_branch(
    report: Report, proofs: Proofs, writer: Schema, reader: Schema
) -> Generator[Pair, Result, Result | None]:
    """The result of a branch that accepts all values of the writer; for oneOf, the only one that may."""
    branches = reader.combination()
    for index, branch in enumerate(branches):
        result = yield report.pair(writer, branch)
        if not result.compatible:
            continue
        others = branches[:index] + branches[index + 1 :]
        if reader.kind == "anyOf" or all(proofs.disjoint(branch, other) for other in others):
            return result
        # Filled defaults would make a value of the writer another one.
        exact = (yield Pair(writer, branch, True)).compatible
        if exact and all(proofs.disjoint(writer, other) for other in others):
            return result
    return None


def _variants(schema: Schema) -> Iterator[Schema]:
    """A schema with several types as one schema per type."""
    names = [name for name in schema.type_names if TYPES[name] <= schema.types]
    if schema.kind != "base" or len(names) < 2:
        return
    for name in names:
        variant = replace(schema, types=TYPES[name], type_names=(name,), annotations=None)
        if schema.values is not None:
            variant.values = frozenset(text for text in schema.values if type_of_text(text) in variant.types)
        variant.parts = (variant,)
        yield variant


def _compare_not(report: Report, proofs: Proofs, writer: Schema, reader: Schema) -> Rule:
    """What the reader excludes must be excluded by the writer: the comparison is reversed."""
    assert reader.negated is not None
    valid = proofs.disjoint(writer, reader.negated)
    for part in writer.parts:
        if not valid and part.negated is not None and part.kind == "not":
            valid = (yield Pair(reader.negated, part.negated, True)).compatible
    if valid:
        report.add("NOT_TYPE_NARROWED", "the reader excludes no more than the writer", "not")
    else:
        report.add("NOT_TYPE_EXTENDED", "the reader excludes values that the writer may write", "not")


def _compare_if(report: Report, proofs: Proofs, writer: Schema, reader: Schema) -> Rule:
    """With the same condition, the consequences are compared; else a writer must satisfy both."""
    mine = reader.conditional
    assert mine is not None
    branches = [branch for branch in (mine.then, mine.otherwise) if branch is not None]
    for part in writer.parts:
        theirs = part.conditional
        if theirs is None or part.kind != "if":
            continue
        same = (yield Pair(theirs.condition, mine.condition, True)).compatible
        if same and (yield Pair(mine.condition, theirs.condition, True)).compatible:
            valid = True
            for their_branch, my_branch in ((theirs.then, mine.then), (theirs.otherwise, mine.otherwise)):
                if my_branch is not None:
                    candidate = writer if their_branch is None else their_branch
                    valid &= (yield report.pair(candidate, my_branch)).compatible
            if valid:
                return
    for branch in branches:
        if not (yield report.pair(writer, branch)).compatible:
            report.add(
                "SCHEMA_ADDED", "the reader's if, then and else may refuse what the writer writes", "if"
            )
            return


_RULES: dict[Kind, Callable[[Report, Proofs, Schema, Schema], Rule]] = {
    "base": _compare_base,
    "allOf": _compare_all_of,
    "anyOf": _compare_any_of,
    "oneOf": _compare_any_of,
    "not": _compare_not,
    "if": _compare_if,
    "unevaluated": compare_unevaluated,
}
