"""The outcome of one suite."""

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
