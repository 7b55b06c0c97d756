"""Values under keys: what is expected, and what to say when something else is there."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

from runnel.pipelines.declared.findings import Findings, Place, did_you_mean, listed
from runnel.pipelines.declared.tree import Mapping as MappingNode
from runnel.pipelines.declared.tree import Node, Scalar, Sequence, described, is_missing

Read: TypeAlias = Callable[[Node, Findings], Any | None]
"""Reads the value of a key; None where that failed, and the findings then say why."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a section."""

    read: Read
    is_required: bool = False


@dataclass(slots=True)
class Section:
    """The keys and values of one section, as far as they could be read."""

    place: Place
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    is_whole: bool = True
    misspelt: set[str] = field(default_factory=set)
    """Keys that something unknown was probably meant to be."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or what holds when it is left out."""
        return self.values.get(key, default)

    def place_of(self, key: str) -> Place:
        """The place of the key; the section's own if it is missing."""
        return self.places.get(key, self.place)


def read_section(node: Node, keys: Mapping[str, Key], what: str, findings: Findings) -> Section | None:
    """Read all keys of a section; None if it is none."""
    if not isinstance(node, MappingNode):
        findings.error(
            node.place, f"{what} should have keys ({listed(keys, 'and')}), found {described(node)}"
        )
        return None
    section = Section(node.place)
    for name, entry in node.entries.items():
        section.places[name] = entry.key.place
        if name not in keys:
            section.is_whole = False
            close = did_you_mean(name, keys)
            section.misspelt.update(key for key in keys if repr(key) in close)
            known = f"; it may have {listed(keys, 'and')}"
            findings.error(entry.key.place, f"{what} has no key {name!r}{close or known}")
            continue
        value = keys[name].read(entry.value, findings)
        if value is None:
            section.is_whole = False
        else:
            section.values[name] = value
    for name, key in keys.items():
        # What is there but misspelt, or there but wrong, has been said.
        if key.is_required and name not in node.entries and name not in section.misspelt:
            findings.error(section.place, f"{what} lacks the key {name!r}")
        if key.is_required and name not in section.values:
            section.is_whole = False
    return section


def scalar(expected: str) -> Read:
    """A text, kept with its place."""

    def read(node: Node, findings: Findings) -> Any:
        if isinstance(node, Scalar) and node.kind == "text" and node.text.strip():
            return node
        if isinstance(node, Scalar) and node.kind in ("a number", "a truth value"):
            quoted = f'; if the text is meant, put it in quotes: "{node.text}"'
            return _wrong(node, findings, expected, quoted)
        return _wrong(node, findings, expected)

    return read


def text(expected: str) -> Read:
    """A text that is not empty."""
    read_scalar = scalar(expected)

    def read(node: Node, findings: Findings) -> Any:
        found = read_scalar(node, findings)
        return None if found is None else str(found.text).strip()

    return read


def matching(pattern: str, expected: str) -> Read:
    """A text of a certain form."""
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
    """A whole number."""
    limits = f"from {least}" if most is None else f"from {least} to {most}"

    def read(node: Node, findings: Findings) -> Any:
        if isinstance(node, Scalar) and re.fullmatch(r"\d{1,18}", node.text):
            number = int(node.text)
            if least <= number and (most is None or number <= most):
                return number
        return _wrong(node, findings, f"{expected}, a whole number {limits}")

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
    """One or more texts."""

    items: tuple[Scalar, ...]
    is_list: bool

    def __iter__(self) -> Iterator[Scalar]:
        return iter(self.items)


NO_TEXTS = Texts((), is_list=True)


def texts(expected: str) -> Read:
    """A list of texts; a single text is a list of one. Each keeps its place."""
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
    """Keys with single values, all kept as texts."""

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
    """A span of time in ms, or one of the words as it is."""
    wanted = f"{expected}, as 10 seconds or 2 hours{''.join(f', or {word}' for word in words)}"

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
    """One of the words, or a time in ms since 1970 as text."""
    wanted = f"{expected}: {', '.join(words)} or a time as 2026-10-01T12:00:00Z"

    def read(node: Node, findings: Findings) -> Any:
        if isinstance(node, Scalar) and node.text in words:
            return node.text
        if not isinstance(node, Scalar):
            return _wrong(node, findings, wanted)
        try:
            time = datetime.fromisoformat(node.text)
        except ValueError:
            return _wrong(node, findings, wanted, did_you_mean(node.text, words))
        # A time without a zone means the same on every machine that the file comes to.
        zoned = time if time.tzinfo else time.replace(tzinfo=UTC)
        if zoned < _FIRST:
            return _wrong(node, findings, wanted, "; no record is older than 1970: earliest is all there are")
        return str(round(zoned.timestamp() * 1000))

    return read


def _wrong(node: Node, findings: Findings, expected: str, close: str = "") -> Any:
    if not is_missing(node):
        findings.error(node.place, f"expected {expected}, found {described(node)}{close}")
    return None
