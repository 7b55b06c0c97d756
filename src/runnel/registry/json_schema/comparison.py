"""Compares two schemas: pairs of subschemas are questions, answered once each, within a budget of steps.

Rules are generators that yield the pairs they depend on, so that the depth of schemas does not meet the
interpreter's limit of recursion, and every question passes one place. Recursive schemas lead back to a pair
that is not answered yet: it is assumed to be compatible. If it turns out not to be, answers that rest on
the assumption are dropped and found again. That ends, as each round adds an incompatible pair; values are
finite, so assuming compatibility until it is refuted is right.
"""

from collections.abc import Generator
from dataclasses import dataclass

from runnel.registry.json_schema import limits
from runnel.registry.json_schema.kinds import Policy, accepted
from runnel.registry.json_schema.proofs import Proofs
from runnel.registry.json_schema.report import Budget, Difference, Pair, Report, Result
from runnel.registry.json_schema.rules import compare_schemas
from runnel.registry.json_schema.schema import Schema


@dataclass(frozen=True, slots=True)
class Differences:
    """What changed from writer to reader."""

    incompatible: tuple[Difference, ...]
    compatible: tuple[Difference, ...]
    steps: int


def compare(
    *, writer: Schema, reader: Schema, policy: Policy = Policy.STRICT, steps_max: int = limits.STEPS_MAX
) -> Differences:
    """All differences, up to a number. Raises TooCostly."""
    comparison = _Comparison(policy, Budget(steps_max))
    result = comparison.answer(Pair(writer, reader, False))
    return Differences(result.breaking, result.harmless, comparison.budget.steps)


class _Comparison:
    def __init__(self, policy: Policy, budget: Budget) -> None:
        self.budget = budget
        self._policy = policy
        self._proofs = Proofs(budget)
        self._incompatible: dict[Pair, Result] = {}

    def answer(self, root: Pair) -> Result:
        while True:
            answers, assumed = self._round(root)
            refuted = {pair: answers[pair] for pair in assumed if not answers[pair].compatible}
            if not answers[root].compatible or not refuted:
                return answers[root]
            self._incompatible.update(refuted)

    def _round(self, root: Pair) -> tuple[dict[Pair, Result], set[Pair]]:
        """Answers to a pair and all it depends on, and the pairs that were assumed to be compatible."""
        answers = dict(self._incompatible)
        assumed: set[Pair] = set()
        if root in answers:
            return answers, assumed
        open_pairs = {root: self._rules(root)}
        reply: Result | None = None
        while open_pairs:
            pair, rules = next(reversed(open_pairs.items()))
            try:
                asked = rules.send(reply)  # type: ignore[arg-type]  # None starts a generator
            except StopIteration as finished:
                reply = answers[pair] = finished.value
                del open_pairs[pair]
                continue
            self.budget.charge()
            reply = answers.get(asked)
            if reply is None and asked in open_pairs:
                assumed.add(asked)
                reply = Result()
            elif reply is None:
                open_pairs[asked] = self._rules(asked)
        return answers, assumed

    def _rules(self, pair: Pair) -> Generator[Pair, Result, Result]:
        report = Report(accepted(self._policy, pair.exact), pair.exact, self.budget)
        yield from compare_schemas(report, self._proofs, pair.writer, pair.reader)
        return report.result()
