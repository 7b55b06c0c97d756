"""The outcome of one suite."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class SuiteResult:
    """Which tests of a suite passed, failed and were skipped."""

    suite: str
    description: str
    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return len(self.passed) + len(self.failed)

    def record(self, test: str, is_passed: bool) -> None:
        """Add a test, and print its outcome."""
        print(f"  {'PASS' if is_passed else 'FAIL'} {test}", flush=True)
        (self.passed if is_passed else self.failed).append(test)

    def record_differences(self, cases: Mapping[str, Sequence[object]]) -> None:
        """Add cases with what differed: nothing where they passed. Prints the first difference of each."""
        for case, differences in cases.items():
            (self.failed if differences else self.passed).append(case)
            for difference in differences[:1]:
                print(f"  {difference}")
