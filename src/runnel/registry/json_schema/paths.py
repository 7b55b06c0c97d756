"""Positions in a schema, as JSON pointers and in words."""

from collections.abc import Sequence

from runnel.registry.json_schema import limits

_SEGMENTS_SHOWN = 40
_BRANCHES = {"allOf", "anyOf", "oneOf"}
_NAMED = {"properties": ".{}", "required": ".{}", "patternProperties": "./{}/"}
_UNNAMED = {
    "additionalProperties": ".*",
    "unevaluatedProperties": ".*",
    "items": "[]",
    "prefixItems": "[]",
    "additionalItems": "[]",
    "unevaluatedItems": "[]",
    "contains": "[]",
}


def pointer(segments: Sequence[str]) -> str:
    """A JSON pointer, such as /properties/name; its end if it is long."""
    shown = segments[-_SEGMENTS_SHOWN:]
    cut = (segment[: limits.PATH_CHARACTERS_MAX] for segment in shown)
    text = "/" + "/".join(segment.replace("~", "~0").replace("/", "~1") for segment in cut)
    if len(shown) < len(segments) or len(text) > limits.PATH_CHARACTERS_MAX:
        return "…" + text[-limits.PATH_CHARACTERS_MAX :]
    return text


def subject(segments: Sequence[str]) -> str:
    """What is at a position, in the words of a message: Property "order.lines[]", branch 2 of oneOf."""
    names: list[str] = []
    branch = ""
    rest = iter(segments[-_SEGMENTS_SHOWN:])
    for segment in rest:
        if segment in _BRANCHES:
            branch = f"branch {next(rest, '')} of {segment}"
            continue
        if segment in _NAMED:
            names.append(_NAMED[segment].format(clipped(next(rest, ""))))
        elif segment in _UNNAMED:
            names.append(_UNNAMED[segment])
        elif segment.isdigit() and names and names[-1] == "[]":
            names[-1] = f"[{segment}]"
        else:
            continue
        branch = ""
    if not names:
        return branch[:1].upper() + branch[1:] or "The schema"
    path = "".join(names).removeprefix(".")
    noun = "Item" if path.startswith("[") else "Property"
    return f'{noun} "{clipped(path)}"' + (f", {branch}" if branch else "")


def clipped(text: str) -> str:
    """A text that a message quotes, cut to a legible length."""
    if len(text) <= limits.SHOWN_CHARACTERS_MAX:
        return text
    return "…" + text[-limits.SHOWN_CHARACTERS_MAX :]
