"""Plain messages for the syntax errors of the YAML parser."""

import re
from typing import Any

from runnel.pipelines.declared.findings import START, Position

# (the problem, the context, the message); {line} is the line at which the parser stopped.
_PHRASES: tuple[tuple[str, str, str], ...] = (
    (r"found character '\\t'", "", "tab character: YAML allows only spaces for indentation"),
    (
        "mapping values are not allowed",
        "",
        "unexpected ':': quote the value, or check the indentation of this line",
    ),
    ("end of stream", "quoted scalar", "unterminated quote"),
    ("", "flow sequence", "list without closing ']', or missing ',' before line {line}"),
    ("", "flow mapping", "mapping without closing '}}', or missing ',' before line {line}"),
    ("unknown escape", "", "unknown escape sequence in double quotes: write \\\\, or use single quotes"),
    ("expected <block end>", "", "the indentation of this line matches no line above"),
    ("could not find expected ':'", "", "missing ':' after a key"),
    ("another document", "", "second document: a pipeline is a single YAML document"),
    ("undefined alias", "", "alias (*name) without a preceding anchor (&name)"),
    (
        "cannot start any token",
        "",
        "a value cannot start with this character: quote the value",
    ),
)


def syntax_error(error: Any, text: str) -> tuple[Position, str]:
    """The position of a syntax error, and its message."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return _position_of_index(text, getattr(error, "position", None)), _bad_character(error)
    position = Position(mark.line + 1, mark.column + 1)
    problem, context = error.problem or "", error.context or ""
    for wrong, doing, phrase in _PHRASES:
        if re.search(wrong, problem if wrong else "") and doing in context:
            # An unterminated element is reported where it starts.
            began = error.context_mark if doing else None
            at = Position(began.line + 1, began.column + 1) if began else position
            return at, phrase.format(line=position.line)
    return position, f"invalid YAML: {problem or context}"


def _bad_character(error: Any) -> str:
    character = getattr(error, "character", None)
    if isinstance(character, int):
        return f"the character U+{character:04X} is not allowed in a text file"
    return f"invalid YAML: {error}"


def _position_of_index(text: str, index: int | None) -> Position:
    if index is None:
        return START
    before = text[:index]
    return Position(before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1)
