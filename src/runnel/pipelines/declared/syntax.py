"""What a YAML parser complains about, in words for people who do not write parsers."""

import re
from typing import Any

from runnel.pipelines.declared.findings import START, Place

# (what the parser says was wrong, while doing what, in plain words); {line} is where it stopped.
_PHRASES: tuple[tuple[str, str, str], ...] = (
    (r"found character '\\t'", "", "a tab: YAML indents with spaces only"),
    (
        "mapping values are not allowed",
        "",
        "a ':' that fits nothing here: put the value in quotes, or check the indentation of this line",
    ),
    ("end of stream", "quoted scalar", "quotes that are never closed"),
    ("", "flow sequence", "a list that is not closed with ']', or lacks a ',' before line {line}"),
    ("", "flow mapping", "braces that are not closed with '}}', or lack a ',' before line {line}"),
    ("unknown escape", "", "a \\ in double quotes that means nothing: write \\\\, or take single quotes"),
    ("expected <block end>", "", "the indentation of this line fits nothing above it"),
    ("could not find expected ':'", "", "a key without ':' after it"),
    ("another document", "", "a second document: a pipeline is one document, without '---' in the middle"),
    ("undefined alias", "", "an alias (*name) of an anchor (&name) that does not exist above"),
    (
        "cannot start any token",
        "",
        "a value may not begin with this character: put the value in quotes",
    ),
)


def in_plain_words(error: Any, text: str) -> tuple[Place, str]:
    """Where the parser stopped, and why."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return _place_of_index(text, getattr(error, "position", None)), _bad_character(error)
    place = Place(mark.line + 1, mark.column + 1)
    problem, context = error.problem or "", error.context or ""
    for wrong, doing, phrase in _PHRASES:
        if re.search(wrong, problem if wrong else "") and doing in context:
            # What is left open is mended where it begins.
            began = error.context_mark if doing else None
            at = Place(began.line + 1, began.column + 1) if began else place
            return at, phrase.format(line=place.line)
    return place, f"this is no YAML: {problem or context}"


def _bad_character(error: Any) -> str:
    character = getattr(error, "character", None)
    if isinstance(character, int):
        return f"the character U+{character:04X} is not allowed in a text file"
    return f"this is no YAML: {error}"


def _place_of_index(text: str, index: int | None) -> Place:
    if index is None:
        return START
    before = text[:index]
    return Place(before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1)
