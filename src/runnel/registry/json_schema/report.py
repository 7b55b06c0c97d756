"""The differences of one pair of schemas, with positions relative to the pair."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from runnel.registry.format import InvalidSchema
from runnel.registry.json_schema import limits
from runnel.registry.json_schema.kinds import KINDS
from runnel.registry.json_schema.paths import pointer, subject
from runnel.registry.json_schema.schema import Schema

Path: TypeAlias = tuple[str, "Path | None"] | None
"""The first segment and the rest: a difference is passed upwards through many schemas."""


class Pair(NamedTuple):
    """The question whether a reader accepts all data of a writer; `exact`: without filling in defaults."""

    writer: Schema
    reader: Schema
    exact: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed from the writer's schema to the reader's."""

    kind: str
    route: Path
    reason: str

    @property
    def path(self) -> str:
        """Its position as a JSON pointer."""
        return pointer(self._segments())

    @property
    def message(self) -> str:
        """Which property, and why, in a sentence."""
        return f"{subject(self._segments())}: {self.reason}."

    def _segments(self) -> list[str]:
        segments = []
        rest = self.route
        while rest is not None:
            segment, rest = rest
            segments.append(segment)
        return segments


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to a pair."""

    breaking: tuple[Difference, ...] = ()
    harmless: tuple[Difference, ...] = ()

    @property
    def compatible(self) -> bool:
        return not self.breaking


Rule: TypeAlias = Generator[Pair, Result, None]
"""A rule asks about pairs and writes to a report."""


class TooCostly(InvalidSchema):
    """Two schemas cannot be compared in the steps that a comparison may take."""


class Budget:
    """Counts the steps of a comparison."""

    def __init__(self, steps_max: int) -> None:
        self.steps = 0
        self._steps_max = steps_max

    def charge(self, steps: int = 1) -> None:
        self.steps += steps
        if self.steps > self._steps_max:
            advice = "simplify oneOf, anyOf or allOf"
            raise TooCostly(f"Comparing the schemas takes more than {self._steps_max} steps: {advice}.")


class Report:
    """Collects the differences of one pair."""

    def __init__(self, accepted: frozenset[str], exact: bool, budget: Budget) -> None:
        self.budget = budget
        self._accepted = accepted
        self._exact = exact
        self._breaking: list[Difference] = []
        self._harmless: list[Difference] = []

    def pair(self, writer: Schema, reader: Schema) -> Pair:
        return Pair(writer, reader, self._exact)

    def add(self, kind: str, reason: str, *path: str) -> None:
        assert kind in KINDS, kind
        self._append(Difference(kind, _routed(path, None), reason))

    def nest(self, result: Result, *path: str) -> None:
        """Adopt the differences of a pair that is at `path` in this one."""
        for differences in (result.breaking, result.harmless):
            for difference in differences:
                nested = Difference(difference.kind, _routed(path, difference.route), difference.reason)
                self.budget.charge()
                if not self._append(nested):
                    break

    def result(self) -> Result:
        return Result(tuple(self._breaking), tuple(self._harmless))

    def _append(self, difference: Difference) -> bool:
        """Whether there was room for it."""
        target = self._harmless if difference.kind in self._accepted else self._breaking
        if len(target) >= limits.DIFFERENCES_MAX:
            return False
        target.append(difference)
        return True


def _routed(path: tuple[str, ...], rest: Path) -> Path:
    for segment in reversed(path):
        rest = (segment, rest)
    return rest
