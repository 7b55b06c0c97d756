"""The collectors of a node, read one after the other when metrics are wanted."""

from collections.abc import Callable, Iterator

from runnel.observe.metrics import Collector, Family, Sample, one


class Registry:
    """Collectors in the order in which they were added."""

    def __init__(self, report: Callable[[Exception], None]) -> None:
        """`report` is called if a collector fails; the others are read nevertheless."""
        self._collectors: list[Collector] = []
        self._report = report
        self._failures = 0

    def add(self, collector: Collector) -> None:
        """Read this collector, too."""
        self._collectors.append(collector)

    def families(self) -> Iterator[Family | None]:
        """All families; None where reading can be interrupted."""
        for collector in list(self._collectors):
            try:
                for family in collector():
                    yield None if family is None else self._guarded(family)
            except Exception as bug:  # noqa: BLE001 - reported
                self._failed(bug)
            yield None
        yield one(
            "runnel_collector_failures_total",
            "counter",
            "Collectors of metrics that failed: some metrics are missing.",
            self._failures,
        )

    def _guarded(self, family: Family) -> Family:
        """The family; its samples end early if computing them fails."""
        return Family(family.name, family.kind, family.help, self._samples(family))

    def _samples(self, family: Family) -> Iterator[Sample]:
        try:
            yield from family.samples
        except Exception as bug:  # noqa: BLE001 - reported
            self._failed(bug)

    def _failed(self, bug: Exception) -> None:
        self._failures += 1
        self._report(bug)
