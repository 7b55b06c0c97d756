"""Matchers and records of silences."""

import pytest

from runnel.observe.alerts.silences import BadSilence, Matcher, Silence, parse_matcher, silenced_by


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("topic=orders", {"topic": "orders"}, True),
        ("topic=orders", {"topic": "orders2"}, False),
        ("topic=orders", {}, False),
        ("topic!=orders", {"topic": "x"}, True),
        ("topic!=orders", {}, True),
        ("topic=~ord.*", {"topic": "orders"}, True),
        ("topic=~ord", {"topic": "orders"}, False),
        ("topic!~ord.*", {"topic": "orders"}, False),
        ('topic="a=b"', {"topic": "a=b"}, True),
        ("topic=", {}, True),
        ("group=a!=b", {"group": "a!=b"}, True),
    ],
)
def test_matchers(text, labels, matches):
    assert parse_matcher(text).matches(labels) is matches


@pytest.mark.parametrize("text", ["topic", "=x", "1a=x", "a b=x", "topic=~(", "topic=~(?<=x)", ""])
def test_mistakes(text):
    with pytest.raises(BadSilence):
        parse_matcher(text)


def test_records():
    matchers = (Matcher("topic", "=~", "ör.*"), Matcher("broker", "!=", "1"))
    silence = Silence("id", matchers, 1000, 2000, "wartung: “disk”", "anna")
    key, text = silence.to_record()
    assert (key, Silence.from_record(key, text)) == ("silence/id", silence)
    assert [silence.is_active(at_ms) for at_ms in (999, 1000, 1999, 2000)] == [False, True, True, False]
    assert silence.expired(1500).ends_ms == 1500
    assert silence.expired(5).ends_ms == 1000
    assert silenced_by([silence], {"topic": "öre", "broker": "2"}, 1500) == ["id"]
    assert silenced_by([silence], {"topic": "öre", "broker": "1"}, 1500) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"matchers":[],"starts_ms":0,"ends_ms":1,"why":"","who":""}',
        '{"matchers":[["a","~","b"]],"starts_ms":0,"ends_ms":1,"why":"","who":""}',
        '{"matchers":[["a","=~","("]],"starts_ms":0,"ends_ms":1,"why":"","who":""}',
        '{"matchers":[["a","="]],"starts_ms":0,"ends_ms":1,"why":"","who":""}',
        '{"matchers":[["a","=","b"]],"starts_ms":"soon","ends_ms":1,"why":"","who":""}',
    ],
)
def test_records_that_are_no_silences(text):
    with pytest.raises(BadSilence):
        Silence.from_record("silence/x", text)
