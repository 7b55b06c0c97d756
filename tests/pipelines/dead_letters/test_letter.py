"""Headers of dead letters, selection of letters, and headers of redriven records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.model.ids import NO_ID
from runnel.pipelines.dead_letters.letter import headers_back, kind_of, mark_of, read_letter
from runnel.pipelines.dead_letters.letter_filter import LetterFilter, OffsetRange, parse_offsets
from runnel.pipelines.errors import BadOption

OURS = [
    ("runnel.dead-letter.reason", b"not JSON at position 17"),
    ("runnel.dead-letter.topic", b"orders"),
    ("runnel.dead-letter.partition", b"2"),
    ("runnel.dead-letter.offset", b"41"),
    ("runnel.dead-letter.timestamp", b"1000"),
    ("runnel.dead-letter.pipeline", b"shop"),
]


def letter(headers=OURS, partition=0, offset=5, timestamp_ms=2000):
    return read_letter("orders.dead-letters", partition, offset, timestamp_ms, b"k", b"v", headers)


def test_a_letter_has_its_origin():
    found = letter()
    assert (found.reason, found.source_topic, found.source_partition) == (
        "not JSON at position 17",
        "orders",
        2,
    )
    assert (found.source_offset, found.source_timestamp_ms, found.pipeline) == (41, 1000, "shop")
    assert found.attempts == 0


def test_a_mark_names_the_topic_where_the_broker_reports_its_id():
    assert mark_of(NO_ID, 0, 5) == "0:5"
    marks = {mark_of(bytes(15) + bytes([last]), 0, 5) for last in (1, 2)}
    assert len(marks) == 2 and all(len(mark) == 22 + 4 and mark.endswith(":0:5") for mark in marks)


def test_the_last_header_of_a_name_counts():
    again = letter([*OURS, ("runnel.dead-letter.reason", b"too late"), ("runnel.dead-letter.offset", b"99")])
    assert (again.reason, again.source_offset) == ("too late", 99)


def test_letters_of_kafka_connect_are_read_as_well():
    found = letter(
        [
            ("__connect.errors.topic", b"payments"),
            ("__connect.errors.partition", b"1"),
            ("__connect.errors.exception.message", b"bad schema"),
        ]
    )
    assert (found.source_topic, found.source_partition, found.reason) == ("payments", 1, "bad schema")


def test_a_record_without_headers_is_a_letter_of_unknown_origin():
    found = letter([])
    assert (found.reason, found.source_topic) == ("no reason given", None)


def test_headers_go_back_as_they_were_with_the_attempt_counted():
    headers = [("trace", b"1"), *OURS, ("trace", None), ("runnel-idempotency-key", b"k")]
    back = headers_back(headers)
    assert back == [("trace", b"1"), ("trace", None), ("runnel.redrive.attempt", b"1")]
    assert headers_back([*back, *OURS])[-1] == ("runnel.redrive.attempt", b"2")


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "runnel.redrive.attempt", *dict(OURS)]), st.none() | st.binary())
    )
)
def test_no_header_of_others_is_lost_and_none_of_ours_is_kept(headers):
    back = headers_back(headers)
    assert [pair for pair in back if pair[0] in "ab"] == [pair for pair in headers if pair[0] in "ab"]
    assert [name for name, _ in back if name not in "ab"] == ["runnel.redrive.attempt"]


def test_reasons_that_differ_in_numbers_are_one_kind():
    assert kind_of("not JSON at position 17") == kind_of("not JSON at position 4") == "not JSON at position #"


@pytest.mark.parametrize(
    ("choice", "is_meant"),
    [
        (LetterFilter(), True),
        (LetterFilter(reason="NOT json"), True),
        (LetterFilter(reason="position #"), True),
        (LetterFilter(reason="late"), False),
        (LetterFilter(source_topic="orders", pipeline="shop"), True),
        (LetterFilter(source_topic="payments"), False),
        (LetterFilter(pipeline="other"), False),
        (LetterFilter(since_ms=2000, until_ms=2001), True),
        (LetterFilter(until_ms=2000), False),
        (LetterFilter(since_ms=2001), False),
        (LetterFilter(offsets=(OffsetRange(0, 1, 4), OffsetRange(0, 5, 5))), True),
        (LetterFilter(offsets=(OffsetRange(1, 0, 9),)), False),
        (LetterFilter(attempts_max=1), True),
        (LetterFilter(attempts_max=0), False),
    ],
)
def test_a_choice_means_what_it_says(choice, is_meant):
    assert choice.matches(letter()) is is_meant


def test_offsets_are_written_as_people_write_them():
    assert parse_offsets("0:17") == OffsetRange(0, 17, 17)
    assert parse_offsets("3:100-199") == OffsetRange(3, 100, 199)
    for text in ("17", "0:", "0:a", "0:1-", ":1", "0:-1"):
        with pytest.raises(BadOption):
            parse_offsets(text)
