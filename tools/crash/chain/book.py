"""What every transaction of a chain meant to do, and whether the logs agree.

A record's value says who it is: `key:number:attempt`, and in the output `>attempt` of the worker behind it.
An attempt is one transaction; its journal says how far it got, so a record tells whether it may be there.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tools.crash.ledger import VIOLATIONS_KEPT_MAX, Place

Log = Mapping[Place, list[tuple[int, bytes]]]
"""Partition → (offset, value) in the order of reading."""
NO_ATTEMPT = b"-"
"""Stands in records that were written outside of transactions."""


@dataclass(slots=True)
class Attempt:
    """One transaction, as far as whoever tried it knows."""

    size: int
    is_commit_asked: bool = False
    is_committed: bool = False
    is_aborted: bool = False


def value_of(key: str, number: int, attempt: str = NO_ATTEMPT.decode()) -> bytes:
    return f"{key}:{number}:{attempt}".encode()


def transformed(value: bytes, attempt: str) -> bytes:
    return value + b">" + attempt.encode()


def original(value: bytes) -> bytes:
    """The input behind an output."""
    return value.partition(b">")[0]


def attempt_of(value: bytes) -> bytes:
    """The transaction that wrote this record last, or nothing where its writer leaves no mark."""
    head, mark, attempt = value.partition(b">")
    return attempt if mark else head.rsplit(b":", 1)[1]


class Journal:
    """A file that outlives its writer: each word stands in it before the next step is taken."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path

    def note(self, word: str, attempt: str, size: int = 0) -> None:
        with self._path.open("ab", buffering=0) as file:
            file.write(f"{word} {attempt} {size}\n".encode())


def read_journals(folder: Path) -> dict[bytes, Attempt]:
    """Every attempt that anybody made."""
    attempts: dict[bytes, Attempt] = {}
    for path in sorted(folder.glob("*.journal")):
        # A writer that was killed may have left half a line, after which it did nothing more.
        for line in path.read_bytes().rpartition(b"\n")[0].splitlines():
            word, name, size = line.split()
            attempt = attempts.setdefault(name, Attempt(int(size)))
            attempt.is_commit_asked |= word == b"commit"
            attempt.is_committed |= word == b"committed"
            attempt.is_aborted |= word == b"aborted"
    return attempts


@dataclass(slots=True)
class Book:
    """The reckoning: what stands in the logs against what everybody meant."""

    attempts: dict[bytes, Attempt] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def accuse(self, text: str) -> None:
        if len(self.violations) < VIOLATIONS_KEPT_MAX and text not in self.violations:
            self.violations.append(text)

    def judge_transactions(self, log: Log, who: str) -> None:
        """Each attempt is there whole or not at all, and as its journal says."""
        shown = Counter(attempt_of(value) for records in log.values() for _, value in records)
        for name, count in shown.items():
            attempt = self.attempts.get(name)
            if name == NO_ATTEMPT:
                continue
            if attempt is None:
                self.accuse(f"{who}: {count} records of {name!r}, which nobody tried")
            elif not attempt.is_commit_asked or attempt.is_aborted:
                self.accuse(f"aborted read: {who} shows {count} records of {name!r}: {attempt}")
            elif count < attempt.size:
                self.accuse(f"torn: {who} shows {count} of {attempt.size} records of {name!r}")

    def judge_commits(self, log: Log, prefix: bytes) -> None:
        """What was told to be committed is there."""
        shown = {attempt_of(value) for records in log.values() for _, value in records}
        for name, attempt in self.attempts.items():
            if attempt.is_committed and name.startswith(prefix) and name not in shown:
                self.accuse(f"lost commit: nothing of {name!r} is there: {attempt}")

    def judge_seen(self, seen: Log, log: Log) -> None:
        """A reader that followed all the time was shown what stands there now: nothing else, and no less."""
        for place, records in log.items():
            now, then = dict(records), seen.get(place, [])
            for offset, value in then:
                if now.get(offset) != value:
                    self.accuse(f"{place} offset {offset} was read as {value!r}, is {now.get(offset)!r}")
            for (before, _), (after, _) in pairwise(then):
                if after <= before:
                    self.accuse(f"{place}: a reader was given offset {after} after {before}")
            for offset in now.keys() - dict(then).keys():
                self.accuse(
                    f"skipped: {place} offset {offset} was never shown to the reader: {now[offset]!r}"
                )

    def judge_copies(self, inputs: Log, outputs: Log) -> None:
        """The output holds every input once, in order per key."""
        wanted = _by_key(inputs)
        found = _by_key(outputs)
        for key in wanted.keys() | found.keys():
            if wanted[key] == found[key]:
                continue
            times = Counter(found[key])
            lost = [number for number in wanted[key] if number not in times]
            doubled = [number for number, count in times.items() if count > 1]
            invented = sorted(times.keys() - set(wanted[key]))
            if lost or doubled or invented:
                self.accuse(f"key {key!r}: lost {lost[:5]}, doubled {doubled[:5]}, invented {invented[:5]}")
            else:
                self.accuse(f"key {key!r}: order broken: {found[key][:20]}, sent as {wanted[key][:20]}")

    def judge_acknowledged(self, acknowledged: Iterable[tuple[str, int]], inputs: Log) -> None:
        """What a producer without transactions was told to be stored is there."""
        found = {key: set(numbers) for key, numbers in _by_key(inputs).items()}
        for key, number in acknowledged:
            if number not in found.get(key, ()):
                self.accuse(f"lost: {key}:{number} was acknowledged and is not in the input")


def _by_key(log: Log) -> dict[str, list[int]]:
    """Key → numbers, in the order of their one partition; a key in two partitions shows as broken order."""
    keys: dict[str, list[int]] = defaultdict(list)
    for place in sorted(log):
        for _, value in log[place]:
            key, number, _ = original(value).decode().split(":")
            keys[key].append(int(number))
    return keys
