"""What a filter finds."""

import json

import pytest

from runnel.client.chunk import Message
from runnel.gateway.console import message_filter
from runnel.gateway.console.message_filter import BadFilter, json_steps, json_values, read_filter

DOCUMENT = {
    "total": 120.5,
    "country": "DE",
    "ok": True,
    "none": None,
    "items": [{"sku": "A1"}, {"sku": "B2"}],
}
MESSAGE = Message(
    "orders",
    3,
    17,
    0,
    b"Anna",
    json.dumps({**DOCUMENT, "a key": "with space", "note": "Grün"}, ensure_ascii=False).encode(),
    [("trace", b"42"), ("empty", None)],
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "anna",
        "COUNTRY",
        '"with space"',
        "grün",
        "trace",
        "/A[0-9]/",
        "key=Anna",
        "key~^An",
        "key!=Bert",
        "-key=Bert",
        "header.trace",
        "header.trace=42",
        "header.trace>41",
        "partition=3",
        "$.total>100",
        "$.total >= 120.5",
        "$.total=120.5",
        "$.country=DE",
        "$.country!=FR",
        "$.country~^D",
        "$.ok=true",
        "$.none=null",
        "$.items[0].sku=A1",
        "$.items[*].sku=B2",
        "$['a key']=\"with space\"",
        "$.note=Grün",
        "$.total>100 key=Anna partition=3",
        "-nothing",
    ],
)
def test_matches(text: str) -> None:
    assert read_filter(text).matches(MESSAGE)


@pytest.mark.parametrize(
    "text",
    [
        "bert",
        "-anna",
        "/A[2-9]/",
        "key=anna",
        "header.trace=41",
        "header.other",
        "header.empty=x",
        "partition=1",
        "$.total>200",
        "$.country=FR",
        "$.missing",
        "$.missing=1",
        "$.items[2].sku",
        "$.ok=false",
        "$.country>1",
        "anna bert",
    ],
)
def test_does_not_match(text: str) -> None:
    assert not read_filter(text).matches(MESSAGE)


@pytest.mark.parametrize(
    "text",
    [
        "/(/",
        "$.a[",
        "$.total>much",
        "partition=x",
        "key~(",
        " ".join("abcdefghijklmnopqr"),
        "$" + ".a" * 33,
        "$" + "[*]" * 33,
        "x" * 2001,
    ],
)
def test_is_refused(text: str) -> None:
    with pytest.raises(BadFilter):
        read_filter(text)


@pytest.mark.parametrize("value", [None, b"", b"\xff\xfe", b"[" * 100_000, b"7"])
def test_any_value_can_be_asked(value: bytes | None) -> None:
    message = Message("t", 0, 0, 0, None, value, [])
    for text in ("anna", "/x/", "$.a=1", "key=a", "value~a", "-$.a=1"):
        read_filter(text).matches(message)


def test_a_pattern_takes_linear_time() -> None:
    # A backtracking engine would not return.
    message = Message("t", 0, 0, 0, None, b"a" * 100_000, [])
    assert not read_filter("/(a*)*b/").matches(message)


def test_terms_are_counted_before_patterns_are_compiled(monkeypatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(message_filter, "compiled", seen.append)
    with pytest.raises(BadFilter, match="at most 16 terms"):
        read_filter("/a/ " * 100)
    assert len(seen) == 16


def test_a_value_is_parsed_once_for_all_terms(monkeypatch) -> None:
    seen: list[bytes] = []
    parse = message_filter._parsed

    def counted(value: bytes) -> object:
        seen.append(value)
        return parse(value)

    monkeypatch.setattr(message_filter, "_parsed", counted)
    found = read_filter("$.total>1 $.country=DE $.ok=true")
    other = Message("orders", 3, 18, 0, None, b"{}", [])
    assert found.matches(MESSAGE) and not found.matches(other) and found.matches(MESSAGE)
    assert len(seen) == 3


def test_a_value_that_is_too_large_is_not_parsed(monkeypatch) -> None:
    monkeypatch.setattr(message_filter, "JSON_BYTES_MAX", 100)
    assert not read_filter("$.total>1").matches(MESSAGE)
    assert read_filter("country -$.total>1").matches(MESSAGE)


def test_an_integer_of_any_length_is_compared() -> None:
    message = Message("t", 0, 0, 0, None, b'{"a": ' + b"9" * 400 + b"}", [])
    assert not read_filter("$.a>1").matches(message)
    assert not read_filter("$.a=1").matches(message)


def test_paths() -> None:
    assert json_steps("$.a[0]['b.c'][*]") == ["a", 0, "b.c", None]
    assert list(json_values({"a": [1, 2]}, ["a", None])) == [1, 2]
    assert list(json_values({"a": {"x": 1}}, ["a", None])) == [1]
    assert list(json_values(7, ["a"])) == []
