r"""Which messages a person wants to see, as one line of text. No I/O.

    anna                 anna occurs in the value, the key or a header, in any case
    "two words"          so do both words, next to each other
    /or[a-z]+s/          the value matches a regular expression (RE2)
    key=anna             the key is anna; key~^an for a regular expression
    header.trace=17      a header has this value; header.trace alone: it has the header
    $.total>100          a field of a JSON value; $.items[0].sku, $.items[*].sku, $['a key']
    partition=3          the partition
    -key=anna            not

All terms have to hold.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import re2  # type: ignore[import-untyped]

from runnel.client.chunk import Message

PATTERN_BYTES_MAX = 1 << 20
"""The memory that one regular expression may take."""

TERMS_MAX = 16
TEXT_MAX = 2000
"""Characters of a filter."""
JSON_BYTES_MAX = 2 * 1024 * 1024
"""A value that is parsed to look at its fields: that cannot be interrupted, and may take 50 ms a megabyte."""

STEPS_MAX = 32
"""Steps of a path: the values of a path are looked up recursively."""
_TERM = re.compile(
    r"""(?P<no>-)?(?:
        (?P<field>key|value|partition|header\.[^\s=!<>~]+|\$(?:[^\s=!<>~\["']|\[[^\]]*\])*)
            (?:\s*(?P<op>!=|>=|<=|=|>|<|~)\s*(?P<operand>"(?:[^"\\]|\\.)*"|[^\s]+))?
      | /(?P<pattern>(?:[^/\\]|\\.)+)/
      | (?P<text>"(?:[^"\\]|\\.)*"|[^\s]+)
    )(?=\s|$)""",
    re.VERBOSE,
)
_STEP = re.compile(
    r"""\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]|\[(?P<all>\*)\]|\[(?P<q>['"])(?P<quoted>.*?)(?P=q)\]"""
)

Predicate = Callable[[Message], bool]
Test = Callable[[Any], bool]


class BadFilter(Exception):
    """The text is not a filter; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """A filter, read from text."""

    text: str
    terms: tuple[Predicate, ...]

    def matches(self, message: Message) -> bool:
        """Do all terms hold?"""
        return all(term(message) for term in self.terms)


def read_filter(text: str) -> MessageFilter:
    """Read a filter. Raises BadFilter."""
    terms: list[Predicate] = []
    documents = _Documents()
    position = 0
    stripped = text.strip()
    if len(stripped) > TEXT_MAX:
        raise BadFilter(f"a filter has at most {TEXT_MAX} characters")
    while position < len(stripped):
        found = _TERM.match(stripped, position)
        if found is None:
            raise BadFilter(f"cannot read the filter from {stripped[position:][:40]!r} on")
        if len(terms) == TERMS_MAX:
            # Before it is compiled.
            raise BadFilter(f"at most {TERMS_MAX} terms")
        predicate = _predicate(found, documents)
        terms.append(_negated(predicate) if found["no"] else predicate)
        position = found.end()
        while position < len(stripped) and stripped[position].isspace():
            position += 1
    return MessageFilter(stripped, tuple(terms))


def _negated(predicate: Predicate) -> Predicate:
    return lambda message: not predicate(message)


def _predicate(found: "re.Match[str]", documents: "_Documents") -> Predicate:
    if found["pattern"] is not None:
        pattern = compiled(found["pattern"])
        return lambda message: message.value is not None and bool(pattern.search(message.value))
    if found["text"] is not None:
        if found["text"].startswith("$"):
            raise BadFilter(f"not a JSON path: {found['text']}; an example is $.items[0].sku")
        return _contains(_unquoted(found["text"]))
    field, operator = found["field"], found["op"]
    operand = None if found["operand"] is None else _unquoted(found["operand"])
    if field == "partition":
        return _partition(operator, operand)
    if field.startswith("$"):
        return _json_term(field, _test(operator, operand), documents)
    test = _test(operator, operand)
    if field.startswith("header."):
        name = field.removeprefix("header.")
        return lambda message: any(test(_text(value)) for header, value in message.headers if header == name)
    if field == "key":
        return lambda message: message.key is not None and test(_text(message.key))
    return lambda message: message.value is not None and test(_text(message.value))


def _partition(operator: str | None, operand: str | None) -> Predicate:
    if operator != "=" or operand is None or not operand.isdecimal():
        raise BadFilter("partition= needs a number")
    number = int(operand)
    return lambda message: message.partition == number


def _contains(needle: str) -> Predicate:
    if needle.isascii():
        low = needle.lower().encode()

        def occurs(data: bytes | None) -> bool:
            return data is not None and low in data.lower()
    else:
        folded = needle.casefold()

        def occurs(data: bytes | None) -> bool:
            return data is not None and folded in data.decode("utf-8", "replace").casefold()

    return lambda message: (
        occurs(message.value)
        or occurs(message.key)
        or any(occurs(name.encode()) or occurs(value) for name, value in message.headers)
    )


def _test(operator: str | None, operand: str | None) -> Test:
    """A test of one value: text, or a value of JSON."""
    if operator is None or operand is None:
        return lambda value: value is not None
    if operator == "~":
        pattern = compiled(operand)
        return lambda value: value is not None and bool(pattern.search(_as_text(value).encode()))
    number = _number(operand)
    if operator in ("=", "!="):
        wanted = operator == "="
        return lambda value: _equals(value, operand, number) is wanted
    if number is None:
        raise BadFilter(f"{operator} needs a number, not {operand!r}")
    compare: Callable[[float, float], bool] = {
        ">": lambda left, right: left > right,
        ">=": lambda left, right: left >= right,
        "<": lambda left, right: left < right,
        "<=": lambda left, right: left <= right,
    }[operator]
    return lambda value: (left := _number(value)) is not None and compare(left, number)


def _equals(value: Any, operand: str, number: float | None) -> bool:
    if isinstance(value, bool) or value is None:
        return operand == json.dumps(value)
    if isinstance(value, int | float):
        return number is not None and value == number
    return _as_text(value) == operand


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        # Integers of JSON may have hundreds of digits.
        return None


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if len(text) > 1 and text[0] == text[-1] == '"' else text


def compiled(pattern: str) -> Any:
    """A regular expression whose time is linear in the text."""
    options = re2.Options()
    options.max_mem = PATTERN_BYTES_MAX
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1 if not pattern.isascii() else re2.Options.Encoding.UTF8
    try:
        return re2.compile(pattern.encode(), options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        shown = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise BadFilter(f"not a regular expression: {pattern!r} ({shown})") from None


# JSON.


_NONE = object()


class _Documents:
    """The values of messages as JSON: each is parsed once, whatever number of terms look at it."""

    def __init__(self) -> None:
        self._message: Message | None = None
        self._document: Any = _NONE

    def of(self, message: Message) -> Any:
        """The value of a message; _NONE if it is not JSON, or too large."""
        if message is not self._message:
            self._message, self._document = message, _parsed(message.value or b"")
        return self._document


def _parsed(value: bytes) -> Any:
    if len(value) > JSON_BYTES_MAX:
        return _NONE
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return _NONE


def _json_term(path: str, test: Test, documents: _Documents) -> Predicate:
    steps = json_steps(path)

    def holds(message: Message) -> bool:
        document = documents.of(message)
        try:
            return document is not _NONE and any(test(value) for value in json_values(document, steps))
        except RecursionError:
            # To print a value takes more stack than to read it.
            return False

    return holds


def json_steps(path: str) -> list[str | int | None]:
    """The steps of a path: names, indexes, and None for all elements."""
    steps: list[str | int | None] = []
    position = 1
    while position < len(path):
        found = _STEP.match(path, position)
        if found is None:
            raise BadFilter(f"not a JSON path: {path}; an example is $.items[0].sku")
        if found["index"] is not None:
            steps.append(int(found["index"]))
        elif found["all"] is not None:
            steps.append(None)
        else:
            steps.append(found["name"] if found["name"] is not None else found["quoted"])
        position = found.end()
    if len(steps) > STEPS_MAX:
        raise BadFilter(f"a path has at most {STEPS_MAX} steps")
    return steps


def json_values(document: Any, steps: list[str | int | None]) -> Iterator[Any]:
    """The values at a path; none if there is no such field."""
    if not steps:
        yield document
        return
    step, rest = steps[0], steps[1:]
    if step is None:
        children = document.values() if isinstance(document, dict) else document
        for child in children if isinstance(document, dict | list) else ():
            yield from json_values(child, rest)
    elif isinstance(step, int) and isinstance(document, list):
        if step < len(document):
            yield from json_values(document[step], rest)
    elif isinstance(document, dict) and str(step) in document:
        yield from json_values(document[str(step)], rest)
