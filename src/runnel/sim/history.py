"""Acknowledged and observed records of a simulation, and the checks between them.

Detected anomalies: lost write, changed record, duplicate, wrong order, gap, unrepeatable read. Decreasing
committed offsets and lost or resurrected topics are detected by the clients that commit and create them.
"""

from collections import defaultdict
from dataclasses import dataclass, field


class Anomaly(AssertionError):
    """The broker violated a guarantee."""


@dataclass(slots=True)
class History:
    """Records acknowledged and read in one simulation, and request counts."""

    records: dict[int, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    """Partition → offset → value of every record acknowledged or read."""
    acknowledged: int = 0
    reads: int = 0
    commits: int = 0

    def record_write(self, partition: int, base_offset: int, values: list[bytes]) -> None:
        """The broker acknowledged these values at these offsets."""
        for offset, value in enumerate(values, base_offset):
            self._record(partition, offset, value, "acknowledged")
        self.acknowledged += len(values)

    def record_read(self, partition: int, offset: int, value: bytes) -> None:
        """A consumer read this value."""
        self._record(partition, offset, value, "read")
        self.reads += 1

    def check_log(self, partition: int, log: dict[int, bytes]) -> None:
        """Compare the final log of a partition with all acknowledged and read records."""
        for offset, value in self.records[partition].items():
            if log.get(offset) != value:
                raise Anomaly(f"{partition}@{offset}: expected {value!r}, found {log.get(offset)!r}")
        if sorted(log) != list(range(len(log))):
            raise Anomaly(f"partition {partition} has gaps: {sorted(set(range(max(log))) - set(log))[:5]}")

    def check_producer(self, name: bytes, log: dict[int, bytes], sent: int) -> None:
        """The values of an idempotent producer are in the log exactly once, in order."""
        numbers = [
            int(value.split(b":")[1]) for _, value in sorted(log.items()) if value.startswith(name + b":")
        ]
        if numbers != list(range(len(numbers))):
            raise Anomaly(f"{name!r} sent {sent} values in order, the log has {numbers[:20]}…")

    def _record(self, partition: int, offset: int, value: bytes, how: str) -> None:
        known = self.records[partition].setdefault(offset, value)
        if known != value:
            raise Anomaly(f"{partition}@{offset}: {how} as {value!r}, previously as {known!r}")
