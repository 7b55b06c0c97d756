"""Parsers of values, which report what was expected and what was found."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

from runnel.pipelines.declared.findings import Findings, Position, did_you_mean, listed
from runnel.pipelines.declared.tree import Mapping as MappingNode
from runnel.pipelines.declared.tree import Node, Scalar, Sequence, described, is_missing

Read: TypeAlias = Callable[[Node, Findings], Any | None]
"""Parses the value of a key; None on errors, which are added to the findings."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a section."""

    read: Read
    is_required: bool = False


@dataclass(slots=True)
class Section:
    """The keys and values of one section, as far as they could be parsed."""

    position: Position
    values: dict[str, Any] = field(default_factory=dict)
    positions: dict[str, Position] = field(default_factory=dict)
    is_whole: bool = True
    misspelt: set[str] = field(default_factory=set)
    """Known keys that unknown keys resemble."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or its default."""
        return self.values.get(key, default)

    def position_of(self, key: str) -> Position:
        """The position of the key, or of the section if the key is missing."""
        return self.positions.get(key, self.position)


def read_section(node: Node, keys: Mapping[str, Key], what: str, findings: Findings) -> Section | None:
    """Parse all keys of a section; None if the node is not a mapping."""
    if not isinstance(node, MappingNode):
        findings.error(
            node.position,
            f"{what} should be a mapping with the keys {listed(keys, 'and')}, found {described(node)}",
        )
        return None
    section = Section(node.position)
    for name, entry in node.entries.items():
        section.positions[name] = entry.key.position
        if name not in keys:
            section.is_whole = False
            close = did_you_mean(name, keys)
            section.misspelt.update(key for key in keys if repr(key) in close)
            known = f"; available: {listed(keys, 'and')}"
            findings.error(entry.key.position, f"{what} has no key {name!r}{close or known}")
            continue
        value = keys[name].read(entry.value, findings)
        if value is None:
            section.is_whole = False
        else:
            section.values[name] = value
    for name, key in keys.items():
        # Misspelt keys and invalid values have been reported already.
        if key.is_required and name not in node.entries and name not in section.misspelt:
            findings.error(section.position, f"{what} requires the key {name!r}")
        if key.is_required and name not in section.values:
            section.is_whole = False
    return section


def scalar(expected: str) -> Read:
    """A string, with its position."""

    def read(node: Node, findings: Findings) -> Any:
        if isinstance(node, Scalar) and node.kind == "text" and node.text.strip():
            return node
        if isinstance(node, Scalar) and node.kind in ("a number", "a boolean"):
            quoted = f'; quote it to make it a string: "{node.text}"'
            return _wrong(node, findings, expected, quoted)
        return _wrong(node, findings, expected)

    return read


def text(expected: str) -> Read:
    """A string that is not empty."""
    read_scalar = scalar(expected)

    def read(node: Node, findings: Findings) -> Any:
        found = read_scalar(node, findings)
        return None if found is None else str(found.text).strip()

    return read


def matching(pattern: str, expected: str) -> Read:
    """A string that matches a pattern."""
    read_text = text(expected)

    def read(node: Node, findings: Findings) -> Any:
        found = read_text(node, findings)
        if found is not None and not re.fullmatch(pattern, found):
            return _wrong(node, findings, expected)
        return found

    return read


def choice(*words: str) -> Read:
    """One of these words."""

    def read(node: Node, findings: Findings) -> Any:
        if isinstance(node, Scalar) and node.text in words:
            return node.text
        close = did_you_mean(node.text, words) if isinstance(node, Scalar) else ""
        return _wrong(node, findings, listed(words), close)

    return read


def count(expected: str, least: int = 1, most: int | None = None) -> Read:
    """An integer."""
    limits = f"of at least {least}" if most is None else f"from {least} to {most}"

    def read(node: Node, findings: Findings) -> Any:
        if isinstance(node, Scalar) and re.fullmatch(r"\d{1,18}", node.text):
            number = int(node.text)
            if least <= number and (most is None or number <= most):
                return number
        return _wrong(node, findings, f"{expected}, an integer {limits}")

    return read


def flag(expected: str) -> Read:
    """true or false."""

    def read(node: Node, findings: Findings) -> Any:
        if isinstance(node, Scalar) and node.text.lower() in ("true", "false"):
            return node.text.lower() == "true"
        return _wrong(node, findings, f"true or false ({expected})")

    return read


@dataclass(frozen=True, slots=True)
class Texts:
    """One or more strings."""

    items: tuple[Scalar, ...]
    is_list: bool

    def __iter__(self) -> Iterator[Scalar]:
        return iter(self.items)


NO_TEXTS = Texts((), is_list=True)


def texts(expected: str) -> Read:
    """A list of strings, each with its position; a single string is a list of one."""
    read_one = scalar(expected)

    def read(node: Node, findings: Findings) -> Any:
        if isinstance(node, Sequence) and not node.items:
            return _wrong(node, findings, f"{expected}, at least one", " (the list is empty)")
        items = node.items if isinstance(node, Sequence) else (node,)
        found = [read_one(item, findings) for item in items]
        if not all(found):
            return None
        return Texts(tuple(item for item in found if item), isinstance(node, Sequence))

    return read


def settings(expected: str) -> Read:
    """A mapping of strings to scalars, which are kept as strings."""

    def read(node: Node, findings: Findings) -> Any:
        if not isinstance(node, MappingNode):
            return _wrong(node, findings, expected)
        found: dict[str, str] = {}
        for name, entry in node.entries.items():
            if isinstance(entry.value, Scalar) and entry.value.kind != "nothing":
                found[name] = entry.value.text
            else:
                return _wrong(entry.value, findings, f"a single value for {name}")
        return found

    return read


_UNITS_MS = {
    "ms": 1, "millisecond": 1, "s": 1000, "second": 1000, "sec": 1000, "m": 60_000, "minute": 60_000,
    "min": 60_000, "h": 3_600_000, "hour": 3_600_000, "d": 86_400_000, "day": 86_400_000, "week": 604_800_000,
}  # fmt: skip
_AMOUNT = re.compile(r"\s*(\d+)\s*([A-Za-z]+)")


def duration(expected: str, *words: str) -> Read:
    """A duration in ms, or one of the words."""
    wanted = f"{expected}, such as 10 seconds or 2 hours{''.join(f', or {word}' for word in words)}"

    def read(node: Node, findings: Findings) -> Any:
        if isinstance(node, Scalar) and node.text in words:
            return node.text
        if not isinstance(node, Scalar):
            return _wrong(node, findings, wanted)
        total_ms, end = 0, 0
        for amount in _AMOUNT.finditer(node.text):
            unit = amount[2].lower()
            size_ms = _UNITS_MS.get(unit) or _UNITS_MS.get(unit.removesuffix("s"))
            if amount.start() != end:
                break
            if size_ms is None:
                close = did_you_mean(unit, ("seconds", "minutes", "hours", "days", "milliseconds"))
                return _wrong(node, findings, wanted, close)
            total_ms, end = total_ms + int(amount[1]) * size_ms, amount.end()
        if not end or node.text[end:].strip():
            return _wrong(node, findings, wanted, did_you_mean(node.text, words))
        return total_ms

    return read


_FIRST = datetime(1970, 1, 1, tzinfo=UTC)


def moment(expected: str, *words: str) -> Read:
    """One of the words, or a timestamp in ms as a string."""
    wanted = f"{expected}: {', '.join(words)} or a time such as 2026-10-01T12:00:00Z"

    def read(node: Node, findings: Findings) -> Any:
        if isinstance(node, Scalar) and node.text in words:
            return node.text
        if not isinstance(node, Scalar):
            return _wrong(node, findings, wanted)
        try:
            time = datetime.fromisoformat(node.text)
        except ValueError:
            return _wrong(node, findings, wanted, did_you_mean(node.text, words))
        # A time without a zone is UTC, so that it does not depend on the machine.
        zoned = time if time.tzinfo else time.replace(tzinfo=UTC)
        if zoned < _FIRST:
            return _wrong(node, findings, wanted, "; the time is before 1970: use earliest")
        return str(round(zoned.timestamp() * 1000))

    return read


def _wrong(node: Node, findings: Findings, expected: str, close: str = "") -> Any:
    if not is_missing(node):
        findings.error(node.position, f"expected {expected}, found {described(node)}{close}")
    return None
