"""Patterns exclude dead-letter topics, with any flags."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.pipelines.declared.patterns import without_dead_letters

PATTERNS = [
    "logs-.*",
    "a|logs-a",
    ".*",
    "(?i)LOGS-.*",
    "(?s)(?i)LOGS-(a|B)(.*)",
    "(?x) logs-  .*  # all of them",
    r"(logs)-(a)\1?.*",
    r"logs-a(\.dead-letters)?",
    "(?!logs-b).*",
    "",
]
NAMES = st.builds(
    "".join,
    st.lists(
        st.sampled_from(
            ["logs-", "LOGS-", "a", "B", "bad", ".dead-letters", ".DEAD-LETTERS", ".redriven", "x", "."]
        ),
        min_size=1,
        max_size=5,
    ),
)


def is_left_out(name: str, named: set[str]) -> bool:
    return name.endswith((".dead-letters", ".dead-letters.redriven")) or name in named


@given(st.sampled_from(PATTERNS), NAMES, st.sets(st.sampled_from(["bad", "logs-bad", "a.bad", "x"])))
def test_patterns_exclude_dead_letter_topics(pattern: str, name: str, named: set[str]) -> None:
    wanted = re.fullmatch(pattern, name) is not None and not is_left_out(name, named)
    assert (re.fullmatch(without_dead_letters(pattern, named), name) is not None) is wanted


@pytest.mark.parametrize("name", ["logs-web", "logs-bad", "logs-web.dead-letters.x", "logs-web.redriven"])
def test_nothing_else_is_excluded(name: str) -> None:
    assert re.fullmatch(without_dead_letters("logs-.*", {"logs-ba", "ogs-bad", "logs.bad"}), name)
