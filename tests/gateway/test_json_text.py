"""JSON that people look at, and others have written."""

import json

from runnel.gateway.console.message_view import decoded
from runnel.gateway.json_text import INDENTED_CHARACTERS_MAX, indented


def test_values_are_indented() -> None:
    value = {"a": [1, 2.5, None, {"ä": "b"}], "c": {}}
    assert indented(value) == json.dumps(value, indent=2, ensure_ascii=False)


def test_what_would_become_too_long_is_in_one_line() -> None:
    """Forty kilobytes at level 300 would be twelve megabytes."""
    deep = b"[" * 300 + b"1," * 20_000 + b"1" + b"]" * 300
    kind, text = decoded(deep, "")
    assert kind == "json" and len(text) < 3 * len(deep) < INDENTED_CHARACTERS_MAX
    assert json.loads(text) == json.loads(deep)


def test_other_values_are_text_or_bytes() -> None:
    assert decoded(None, "") == ("null", "")
    assert decoded(b"[1", "") == ("text", "[1")
    assert decoded(b"\xff", "")[0] == "hex"
    assert decoded(b"[1]", "text") == ("text", "[1]")
    assert decoded(b"[1]", "hex")[0] == "hex"
