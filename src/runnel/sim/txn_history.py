"""Transactions of a simulation, the records observed by read_committed consumers, and checks between them.

Detected anomalies: aborted read, dirty read, partial transaction, lost commit, duplicate, wrong order,
unrepeatable read, decreasing last stable offset, and committed offsets that decrease or disagree with the
records of their transaction.

A record's value is `name:number:attempt`; a copy adds `>attempt` of the copying transaction.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from runnel.sim.history import Anomaly

PartitionKey = tuple[str, int]
"""Topic and partition."""
SOURCE = "payments"
COPIES = "copies"


@dataclass(slots=True)
class Attempt:
    """A transaction as seen by its producer."""

    name: bytes
    size: int = 0
    is_commit_requested: bool = False
    is_committed: bool = False
    is_aborted: bool = False


def original(value: bytes) -> bytes:
    """The source value of a copy."""
    return value.partition(b">")[0]


def attempt_of(value: bytes) -> bytes:
    head, mark, attempt = value.partition(b">")
    return attempt if mark else head.rsplit(b":", 1)[1]


@dataclass(slots=True)
class TransactionHistory:
    """All attempts of a simulation, and all records that consumers observed."""

    attempts: dict[bytes, Attempt] = field(default_factory=dict)
    seen: dict[PartitionKey, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    stable: dict[PartitionKey, int] = field(default_factory=lambda: defaultdict(int))
    committed_offsets: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Source partition → offset in the latest acknowledged transaction."""
    is_replicated: bool = False
    """A new leader may know of less at first: its last stable offset may be lower."""
    rejections: Counter[str] = field(default_factory=Counter)
    reads: int = 0
    commits: int = 0
    copies: int = 0

    def begin(self, name: bytes) -> Attempt:
        attempt = self.attempts[name] = Attempt(name)
        return attempt

    def committed(self, attempt: Attempt, *, is_copy: bool) -> None:
        attempt.is_committed = True
        self.commits += 1
        self.copies += is_copy

    def observe(self, key: PartitionKey, offset: int, value: bytes) -> None:
        """A read_committed consumer received this record."""
        attempt = self.attempts[attempt_of(value)]
        if not attempt.is_commit_requested or attempt.is_aborted:
            raise Anomaly(f"{key}@{offset} returned {value!r}, but {attempt}")
        known = self.seen[key].setdefault(offset, value)
        if known != value:
            raise Anomaly(f"{key}@{offset} was read as {value!r}, previously as {known!r}")
        self.reads += 1

    def observe_stable_offset(self, key: PartitionKey, stable_offset: int, high_watermark: int) -> None:
        """A fetch response contained this last stable offset."""
        before = 0 if self.is_replicated else self.stable[key]
        if not before <= stable_offset <= high_watermark:
            raise Anomaly(f"{key}: last stable offset {stable_offset} of {high_watermark}, was {before}")
        self.stable[key] = stable_offset

    def check_log(self, key: PartitionKey, log: dict[int, bytes]) -> None:
        """Compare the final log of a partition with the records observed, and check its order."""
        for offset, value in self.seen[key].items():
            if log.get(offset) != value:
                raise Anomaly(f"{key}@{offset} was read as {value!r}, is {log.get(offset)!r}")
        newest: dict[bytes, int] = {}
        for offset, value in sorted(log.items()):
            name, number, _ = original(value).split(b":")
            if int(number) <= newest.get(name, -1):
                raise Anomaly(f"{key}@{offset} holds {value!r} after number {newest[name]}")
            newest[name] = int(number)

    def check_attempts(self, logs: dict[PartitionKey, dict[int, bytes]]) -> None:
        """Each transaction is visible completely or not at all, as acknowledged to its producer."""
        visible = Counter(attempt_of(value) for log in logs.values() for value in log.values())
        for attempt in self.attempts.values():
            count = visible[attempt.name]
            if count and (not attempt.is_commit_requested or attempt.is_aborted):
                raise Anomaly(f"{count} records are visible of {attempt}")
            if count not in (0, attempt.size):
                raise Anomaly(f"partial: {count} records are visible of {attempt}")
            if attempt.is_committed and count != attempt.size:
                raise Anomaly(f"lost: no records are visible of {attempt}")

    def check_copies(
        self, partition: int, source: dict[int, bytes], copies: dict[int, bytes], at: int
    ) -> None:
        """The copies equal the source up to the group's committed offset: each record once, in order."""
        wanted = [value for offset, value in sorted(source.items()) if offset < at]
        found = [original(value) for _, value in sorted(copies.items())]
        if wanted != found:
            raise Anomaly(
                f"partition {partition} up to {at}: {len(wanted)} in the source, {len(found)} copies; "
                f"without {sorted(set(wanted) - set(found))[:3]}, with {sorted(set(found) - set(wanted))[:3]}"
            )
        if at < self.committed_offsets[partition]:
            raise Anomaly(
                f"committed offset {at} of partition {partition} was {self.committed_offsets[partition]}"
            )
