"""What clients were promised and what they saw, and whether the two agree.

The anomalies looked for here: lost write, changed record, duplicate, broken order, gap, a read that later
was undone. Offsets that go back and topics that come or go without leave are found by the actors who commit
and make them.
"""

from collections import defaultdict
from dataclasses import dataclass, field


class Anomaly(AssertionError):
    """The broker broke a promise."""


@dataclass(slots=True)
class History:
    """What one world was promised of its records, and how much was tried."""

    records: dict[int, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    """Partition → offset → value, for everything acknowledged or read."""
    acknowledged: int = 0
    reads: int = 0
    commits: int = 0

    def wrote(self, partition: int, base_offset: int, values: list[bytes]) -> None:
        """The broker acknowledged these values at these offsets."""
        for offset, value in enumerate(values, base_offset):
            self._note(partition, offset, value, "acknowledged")
        self.acknowledged += len(values)

    def read(self, partition: int, offset: int, value: bytes) -> None:
        """A reader saw this value."""
        self._note(partition, offset, value, "read")
        self.reads += 1

    def check_log(self, partition: int, log: dict[int, bytes]) -> None:
        """Compare the whole partition, as it stands at the end, with all that was promised."""
        for offset, value in self.records[partition].items():
            if log.get(offset) != value:
                raise Anomaly(f"{partition}@{offset}: promised {value!r}, found {log.get(offset)!r}")
        if sorted(log) != list(range(len(log))):
            raise Anomaly(f"partition {partition} has gaps: {sorted(set(range(max(log))) - set(log))[:5]}")

    def check_producer(self, name: bytes, log: dict[int, bytes], sent: int) -> None:
        """An idempotent producer's values stand in the log once each, in the order of sending."""
        numbers = [
            int(value.split(b":")[1]) for _, value in sorted(log.items()) if value.startswith(name + b":")
        ]
        if numbers != list(range(len(numbers))):
            raise Anomaly(f"{name!r} wrote {sent} values in order, the log has {numbers[:20]}…")

    def _note(self, partition: int, offset: int, value: bytes, how: str) -> None:
        known = self.records[partition].setdefault(offset, value)
        if known != value:
            raise Anomaly(f"{partition}@{offset}: {how} as {value!r}, before that as {known!r}")
