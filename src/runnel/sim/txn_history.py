"""What transactions of a simulated world meant to do, and what readers of committed records were shown.

The anomalies looked for here: aborted read, precommitted read, torn transaction, lost commit, duplicate,
broken order, a read that later was undone, a last stable offset that goes back, offsets that go back or
disagree with what was written beside them.

A record's value says who it is: `name:number:attempt`, and in a copy `>attempt` of the one who copied it.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from runnel.sim.history import Anomaly

Place = tuple[str, int]
"""Topic and partition."""
SOURCE = "payments"
COPIES = "copies"


@dataclass(slots=True)
class Attempt:
    """One transaction, as far as its producer knows."""

    name: bytes
    size: int = 0
    is_commit_asked: bool = False
    is_committed: bool = False
    is_aborted: bool = False


def original(value: bytes) -> bytes:
    """What was copied."""
    return value.partition(b">")[0]


def attempt_of(value: bytes) -> bytes:
    head, mark, attempt = value.partition(b">")
    return attempt if mark else head.rsplit(b":", 1)[1]


@dataclass(slots=True)
class TransactionHistory:
    """Every attempt of one world, and all that its readers saw."""

    attempts: dict[bytes, Attempt] = field(default_factory=dict)
    seen: dict[Place, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    stable: dict[Place, int] = field(default_factory=lambda: defaultdict(int))
    moved: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Partition of the source → offset in the newest transaction that was acknowledged."""
    refusals: Counter[str] = field(default_factory=Counter)
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

    def show(self, place: Place, offset: int, value: bytes) -> None:
        """A reader of committed records was given this one."""
        attempt = self.attempts[attempt_of(value)]
        if not attempt.is_commit_asked or attempt.is_aborted:
            raise Anomaly(f"{place}@{offset} shows {value!r}, but {attempt}")
        known = self.seen[place].setdefault(offset, value)
        if known != value:
            raise Anomaly(f"{place}@{offset} is shown as {value!r}, before that as {known!r}")
        self.reads += 1

    def stand(self, place: Place, stable_offset: int, high_watermark: int) -> None:
        """A partition told how far it is stable."""
        if not self.stable[place] <= stable_offset <= high_watermark:
            before = self.stable[place]
            raise Anomaly(f"{place} is stable up to {stable_offset} of {high_watermark}, was up to {before}")
        self.stable[place] = stable_offset

    def check_log(self, place: Place, log: dict[int, bytes]) -> None:
        """A committed partition at the end against what readers saw of it, and its own order."""
        for offset, value in self.seen[place].items():
            if log.get(offset) != value:
                raise Anomaly(f"{place}@{offset} was shown as {value!r}, is {log.get(offset)!r}")
        newest: dict[bytes, int] = {}
        for offset, value in sorted(log.items()):
            name, number, _ = original(value).split(b":")
            if int(number) <= newest.get(name, -1):
                raise Anomaly(f"{place}@{offset} holds {value!r} after number {newest[name]}")
            newest[name] = int(number)

    def check_attempts(self, logs: dict[Place, dict[int, bytes]]) -> None:
        """Each transaction is there whole or not at all, and as its producer was told."""
        shown = Counter(attempt_of(value) for log in logs.values() for value in log.values())
        for attempt in self.attempts.values():
            count = shown[attempt.name]
            if count and (not attempt.is_commit_asked or attempt.is_aborted):
                raise Anomaly(f"{count} records are shown of {attempt}")
            if count not in (0, attempt.size):
                raise Anomaly(f"torn: {count} records are shown of {attempt}")
            if attempt.is_committed and count != attempt.size:
                raise Anomaly(f"lost: nothing is shown of {attempt}")

    def check_copies(
        self, partition: int, source: dict[int, bytes], copies: dict[int, bytes], at: int
    ) -> None:
        """The copies are what stands in the source before the group's offset: each once, in order."""
        wanted = [value for offset, value in sorted(source.items()) if offset < at]
        found = [original(value) for _, value in sorted(copies.items())]
        if wanted != found:
            raise Anomaly(
                f"partition {partition} up to {at}: {len(wanted)} in the source, {len(found)} copies; "
                f"without {sorted(set(wanted) - set(found))[:3]}, with {sorted(set(found) - set(wanted))[:3]}"
            )
        if at < self.moved[partition]:
            raise Anomaly(f"the group stands at {at} in {partition}, was at {self.moved[partition]}")
