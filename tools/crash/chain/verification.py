"""Compares the logs of a chain with what its transactions did.

A record's value is its identity: `key:number:attempt`, followed in the output by `>attempt` of the worker. An
attempt is one transaction; its journal shows how far it got, and so whether its records may be visible.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tools.crash.ledger import VIOLATIONS_KEPT_MAX, Partition

Log = Mapping[Partition, list[tuple[int, bytes]]]
"""Partition → (offset, value) in the order of reading."""
NO_ATTEMPT = b"-"
"""The attempt of records written outside of transactions."""


@dataclass(slots=True)
class Attempt:
    """One transaction, as far as its client knows."""

    size: int
    is_commit_requested: bool = False
    is_committed: bool = False
    is_aborted: bool = False


def value_of(key: str, number: int, attempt: str = NO_ATTEMPT.decode()) -> bytes:
    return f"{key}:{number}:{attempt}".encode()


def transformed(value: bytes, attempt: str) -> bytes:
    return value + b">" + attempt.encode()


def original(value: bytes) -> bytes:
    """The input of an output."""
    return value.partition(b">")[0]


def attempt_of(value: bytes) -> bytes:
    """The transaction that wrote this record, or nothing if its writer leaves no mark."""
    head, mark, attempt = value.partition(b">")
    return attempt if mark else head.rsplit(b":", 1)[1]


class Journal:
    """A file that survives its writer: each step is written before the next one begins."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path

    def write(self, step: str, attempt: str, size: int = 0) -> None:
        with self._path.open("ab", buffering=0) as file:
            file.write(f"{step} {attempt} {size}\n".encode())


def read_journals(folder: Path) -> dict[bytes, Attempt]:
    """Every attempt of every writer."""
    attempts: dict[bytes, Attempt] = {}
    for path in sorted(folder.glob("*.journal")):
        # A writer that was killed may have left half a line, after which it did nothing more.
        for line in path.read_bytes().rpartition(b"\n")[0].splitlines():
            step, name, size = line.split()
            attempt = attempts.setdefault(name, Attempt(int(size)))
            attempt.is_commit_requested |= step == b"commit"
            attempt.is_committed |= step == b"committed"
            attempt.is_aborted |= step == b"aborted"
    return attempts


@dataclass(slots=True)
class Verifier:
    """Compares logs with journals, and collects violations."""

    attempts: dict[bytes, Attempt] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def fail(self, text: str) -> None:
        if len(self.violations) < VIOLATIONS_KEPT_MAX and text not in self.violations:
            self.violations.append(text)

    def check_transactions(self, log: Log, who: str) -> None:
        """Each attempt is visible as a whole or not at all, as its journal requires."""
        visible = Counter(attempt_of(value) for records in log.values() for _, value in records)
        for name, count in visible.items():
            attempt = self.attempts.get(name)
            if name == NO_ATTEMPT:
                continue
            if attempt is None:
                self.fail(f"{who}: {count} records of the unknown transaction {name!r}")
            elif not attempt.is_commit_requested or attempt.is_aborted:
                self.fail(f"aborted read: {who} has {count} records of {name!r}: {attempt}")
            elif count < attempt.size:
                self.fail(f"torn: {who} has {count} of {attempt.size} records of {name!r}")

    def check_commits(self, log: Log, prefix: bytes) -> None:
        """What was reported as committed is visible."""
        visible = {attempt_of(value) for records in log.values() for _, value in records}
        for name, attempt in self.attempts.items():
            if attempt.is_committed and name.startswith(prefix) and name not in visible:
                self.fail(f"lost commit: no record of {name!r} is visible: {attempt}")

    def check_seen(self, seen: Log, log: Log) -> None:
        """A reader that followed the log received exactly what is stored now."""
        for partition, records in log.items():
            now, then = dict(records), seen.get(partition, [])
            for offset, value in then:
                if now.get(offset) != value:
                    self.fail(f"{partition} offset {offset} was read as {value!r}, is {now.get(offset)!r}")
            for (before, _), (after, _) in pairwise(then):
                if after <= before:
                    self.fail(f"{partition}: a reader received offset {after} after {before}")
            for offset in now.keys() - dict(then).keys():
                self.fail(
                    f"skipped: {partition} offset {offset} was never returned to the reader: {now[offset]!r}"
                )

    def check_copies(self, inputs: Log, outputs: Log) -> None:
        """The output holds every input once, in order per key."""
        wanted = _by_key(inputs)
        found = _by_key(outputs)
        for key in wanted.keys() | found.keys():
            if wanted[key] == found[key]:
                continue
            times = Counter(found[key])
            lost = [number for number in wanted[key] if number not in times]
            duplicated = [number for number, count in times.items() if count > 1]
            invented = sorted(times.keys() - set(wanted[key]))
            if lost or duplicated or invented:
                self.fail(
                    f"key {key!r}: lost {lost[:5]}, duplicated {duplicated[:5]}, invented {invented[:5]}"
                )
            else:
                self.fail(f"key {key!r}: order broken: {found[key][:20]}, sent as {wanted[key][:20]}")

    def check_acknowledged(self, acknowledged: Iterable[tuple[str, int]], inputs: Log) -> None:
        """What was acknowledged outside of transactions is stored."""
        found = {key: set(numbers) for key, numbers in _by_key(inputs).items()}
        for key, number in acknowledged:
            if number not in found.get(key, ()):
                self.fail(f"lost: {key}:{number} was acknowledged and is not in the input")


def _by_key(log: Log) -> dict[str, list[int]]:
    """Key → numbers, in the order of their one partition; a key in two partitions shows as broken order."""
    keys: dict[str, list[int]] = defaultdict(list)
    for partition in sorted(log):
        for _, value in log[partition]:
            key, number, _ = original(value).decode().split(":")
            keys[key].append(int(number))
    return keys
