r"""`ssl.principal.mapping.rules`: from the distinguished name of a certificate to the name of a principal.

    RULE:^CN=(.*?),OU=Streams.*$/$1/L,DEFAULT

Rules are separated by commas. The first whose pattern matches the whole name decides: its replacement, in
which `$1` is a group, in lower case with `L` and upper case with `U`. `DEFAULT` is the name itself. A slash
in a pattern or replacement is written as `\/`.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))?\s*(?:,|$)")
_NAMED_GROUP = re.compile(r"\(\?<(?=[a-zA-Z])")
_REPLACED = re.compile(r"\\(.)|\$\{(\w+)\}|\$(\d+)", re.DOTALL)

_CASES: dict[str, Callable[[str], str]] = {"L": str.lower, "U": str.upper, "": str}


class BadRules(ValueError):
    """The text is not a list of rules."""


class NoRule(Exception):
    """No rule matches a distinguished name."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None for the name itself."""
    replacement: str = ""
    case: str = ""


class PrincipalMapping:
    """The rules of a listener."""

    def __init__(self, rules: str) -> None:
        """Raises BadRules."""
        self._rules = list(_parsed(rules))

    def name_of(self, distinguished_name: str) -> str:
        """The name of the principal. Raises NoRule."""
        for rule in self._rules:
            if rule.pattern is None:
                return distinguished_name
            if rule.pattern.fullmatch(distinguished_name):
                return _CASES[rule.case](_replaced(rule.pattern, rule.replacement, distinguished_name))
        raise NoRule(f"no rule of ssl.principal.mapping.rules matches {distinguished_name!r}")


def _parsed(text: str) -> list[_Rule]:
    rules = []
    position = 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None:
            raise BadRules(f"invalid rule: {text[position:]!r}")
        position = found.end()
        default, pattern, replacement, case = found.groups()
        if default:
            rules.append(_Rule(None))
        elif pattern is not None:
            rules.append(_Rule(_compiled(pattern), replacement, case))
    return rules


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        # Java's spelling of named groups.
        return re.compile(_NAMED_GROUP.sub("(?P<", pattern))
    except re.error as error:
        raise BadRules(f"invalid pattern {pattern!r}: {error}") from error


def _replaced(pattern: re.Pattern[str], replacement: str, text: str) -> str:
    """As Java's replaceAll: every match is replaced, even if one of them is empty."""

    def substitute(found: re.Match[str]) -> str:
        return _REPLACED.sub(lambda mark: _value_of(mark, found), replacement)

    return pattern.sub(substitute, text)


def _value_of(mark: re.Match[str], found: re.Match[str]) -> str:
    literal, name, number = mark.groups()
    if literal is not None:
        return literal
    if name is not None:
        return found[name] or "" if name in found.re.groupindex else mark[0]
    # The longest number of an existing group; without one it is literal.
    for end in range(len(number), 0, -1):
        if int(number[:end]) <= found.re.groups:
            return (found[int(number[:end])] or "") + number[end:]
    return mark[0]
