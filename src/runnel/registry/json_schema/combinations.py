"""Rules for allOf, anyOf and oneOf on both sides: branches are paired by a maximum matching.

A sum (anyOf, oneOf) may grow, a product (allOf) may shrink, and anything may become an anyOf. A oneOf
demands more: a value of one branch must not become valid for a second one. Branches that exclude each
other, and branches that accept what they accepted before, prove that.
"""

from collections import deque
from collections.abc import Generator, Iterator
from itertools import chain

from runnel.registry.json_schema.json_text import canonical
from runnel.registry.json_schema.proofs import Proofs
from runnel.registry.json_schema.report import Pair, Report, Result, Rule
from runnel.registry.json_schema.schema import Kind, Schema

Branches = list[tuple[int, Schema]]


def compare_combinations(report: Report, proofs: Proofs, writer: Schema, reader: Schema) -> Rule:
    """Compare two parts that are combinations."""
    theirs, mine = _distinct(report, writer), _distinct(report, reader)
    if not _compare_criteria(report, writer.kind, len(theirs), reader.kind, len(mine)):
        return
    _compare_sizes(report, writer.kind, len(theirs), reader.kind, len(mine))
    pairs, results = yield from _maximum_matching(report, theirs, mine)
    for row, column in pairs.items():
        report.nest(results[row, column], reader.kind, str(mine[column][0]))
    if len(pairs) < min(len(theirs), len(mine)):
        report.add("COMBINED_TYPE_SUBSCHEMAS_CHANGED", _unmatched(writer, theirs, mine, pairs, results))
    elif reader.kind == "oneOf" and len(mine) > 1:
        yield from _compare_exclusion(report, proofs, writer, theirs, mine, pairs)


def _distinct(report: Report, schema: Schema) -> Branches:
    """The branches with their positions. A repeated one counts once, but makes a oneOf false."""
    branches = list(enumerate(schema.combination()))
    report.budget.charge(len(branches))
    if schema.kind == "oneOf" or len(branches) == 1:
        return branches
    found: dict[str | Schema, tuple[int, Schema]] = {}
    for index, branch in branches:
        text = canonical(branch.raw)
        report.budget.charge(len(text) // 100)
        # Equal references mean the same only beside each other.
        found.setdefault(branch if "ref" in text.lower() else text, (index, branch))
    return list(found.values())


def _compare_criteria(report: Report, theirs: Kind, their_size: int, mine: Kind, my_size: int) -> bool:
    """Whether the branches are worth comparing."""
    if theirs == mine:
        return True
    extended = (
        mine == "anyOf"
        or their_size == my_size == 1
        or (mine == "oneOf" and (their_size == 1 or (theirs == "anyOf" and their_size <= my_size)))
        or (theirs == "allOf" and my_size == 1)
    )
    if extended:
        report.add("COMBINED_TYPE_EXTENDED", f"{theirs} became {mine}")
    else:
        report.add("COMBINED_TYPE_CHANGED", f"the writer has {theirs}, the reader {mine}, which demands more")
    return extended


def _compare_sizes(report: Report, theirs: Kind, their_size: int, mine: Kind, my_size: int) -> None:
    reason = f"the reader's {mine} has {my_size} branches, the writer's {theirs} {their_size}"
    if their_size < my_size:
        report.add("PRODUCT_TYPE_EXTENDED" if mine == "allOf" else "SUM_TYPE_EXTENDED", reason)
    elif their_size > my_size:
        report.add("PRODUCT_TYPE_NARROWED" if theirs == "allOf" else "SUM_TYPE_NARROWED", reason)


def _maximum_matching(
    report: Report, theirs: Branches, mine: Branches
) -> Generator[Pair, Result, tuple[dict[int, int], dict[tuple[int, int], Result]]]:
    """As many compatible pairs of branches as possible, none used twice, by augmenting paths.

    Branches are compared only when a path needs them, those at the same position first: where little
    changed, each branch is compared with one other.
    """
    positions = {branch.location: column for column, (_, branch) in enumerate(mine)}
    results: dict[tuple[int, int], Result] = {}
    pairs: dict[int, int] = {}
    taken: dict[int, int] = {}
    for start in range(len(theirs)):
        reached_from: dict[int, int] = {}
        rows = deque([start])
        free: int | None = None
        while rows and free is None:
            row = rows.popleft()
            for column in _preferred(positions.get(theirs[row][1].location), len(mine)):
                report.budget.charge()
                if column in reached_from:
                    continue
                if (row, column) not in results:
                    results[row, column] = yield report.pair(theirs[row][1], mine[column][1])
                if not results[row, column].compatible:
                    continue
                reached_from[column] = row
                if column not in taken:
                    free = column
                    break
                rows.append(taken[column])
        while free is not None:
            row = reached_from[free]
            previous = pairs.get(row)
            pairs[row], taken[free] = free, row
            free = previous
    return pairs, results


def _preferred(first: int | None, count: int) -> Iterator[int]:
    others = (column for column in range(count) if column != first)
    return others if first is None else chain([first], others)


def _unmatched(
    writer: Schema,
    theirs: Branches,
    mine: Branches,
    pairs: dict[int, int],
    results: dict[tuple[int, int], Result],
) -> str:
    """Which branch has no counterpart, and what is wrong with the one at its position."""
    row = next(row for row in range(len(theirs)) if row not in pairs)
    reason = f"no branch of the reader matches branch {theirs[row][0]} of the writer's {writer.kind}"
    result = results.get((row, row)) or Result()
    if result.breaking:
        closest = result.breaking[0]
        reason += f"; in branch {mine[row][0]}, {closest.path}: {closest.reason}"
    return reason


def _compare_exclusion(
    report: Report, proofs: Proofs, writer: Schema, theirs: Branches, mine: Branches, pairs: dict[int, int]
) -> Rule:
    """Whether a value of a branch can become valid for a second branch of the reader's oneOf."""
    domain = proofs.types(writer)
    rows = {column: row for row, column in pairs.items()}
    for row, column in pairs.items():
        for other in range(len(mine)):
            report.budget.charge()
            if other == column or proofs.disjoint(mine[column][1], mine[other][1], domain):
                continue
            # Filled defaults would make a value of the writer another one.
            excluded = (yield Pair(theirs[row][1], mine[column][1], True)).compatible
            if excluded and not proofs.disjoint(theirs[row][1], mine[other][1], domain):
                # What is not valid for the writer's branch still is not if the reader's accepts no more.
                former = theirs[rows[other]][1] if writer.kind == "oneOf" and other in rows else None
                excluded = former is not None and (yield Pair(mine[other][1], former, True)).compatible
            if not excluded:
                change = "TYPE_CHANGED" if writer.kind == "anyOf" else "TYPE_SUBSCHEMAS_CHANGED"
                reason = _overlap(writer, theirs[row][0], mine[column][0], mine[other][0])
                report.add(f"COMBINED_{change}", reason)
                return


def _overlap(writer: Schema, branch: int, one: int, other: int) -> str:
    return (
        f"values of branch {branch} of the writer's {writer.kind} may be valid for branches {one} and "
        f"{other} of the reader's oneOf, which accepts those of one branch only; a constant property in each "
        "branch, or anyOf, avoids that"
    )
