"""The keys that a partition remembers, against a list of all records that is searched from its start."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.log import dedup
from runnel.log.dedup import KnownKeys
from runnel.log.idempotency import KeyedRecord
from runnel.model.errors import ApiError, ErrorCode

WINDOW_MS = 10
KEYS_MAX = 4

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f"])
PAYLOADS = st.sampled_from([b"1", b"2"])
ACTIONS = st.one_of(
    st.tuples(st.just("send"), KEYS, PAYLOADS),
    st.tuples(st.just("send"), KEYS, st.just(b"1")),
    st.tuples(st.just("pause"), st.integers(1, 12)),
    st.tuples(st.just("truncate"), st.integers(0, 3)),
    st.tuples(st.just("lead")),
)


@dataclass
class Written:
    record: KeyedRecord
    offset: int
    at_ms: int


@dataclass
class Twin:
    """Everything that was written, and when."""

    log: list[Written] = field(default_factory=list)

    def answer(self, record: KeyedRecord, now_ms: int) -> int | str | None:
        remembered = [each for each in self.log if each.at_ms + WINDOW_MS > now_ms]
        for each in remembered:
            if each.record.key == record.key:
                return each.offset if each.record.fingerprint == record.fingerprint else "DUPLICATE_RESOURCE"
        return "THROTTLING_QUOTA_EXCEEDED" if len(remembered) >= KEYS_MAX else None


def ask(known: KnownKeys, record: KeyedRecord, now_ms: int) -> int | str | None:
    try:
        found = known.find(record, now_ms)
    except ApiError as error:
        return error.error.name
    return None if found is None else found.offset


@given(st.lists(ACTIONS, max_size=60))
def test_what_is_remembered_is_what_was_written_within_the_window(actions) -> None:
    known, twin, now_ms = KnownKeys(WINDOW_MS, KEYS_MAX), Twin(), 0
    for action in actions:
        match action:
            case ("send", key, payload):
                record = KeyedRecord(key, payload)
                answer = ask(known, record, now_ms)
                assert answer == twin.answer(record, now_ms)
                if answer is None:
                    offset = twin.log[-1].offset + 1 if twin.log else 0
                    known.add(record, offset, 7, now_ms)
                    twin.log.append(Written(record, offset, now_ms))
            case ("pause", duration_ms):
                now_ms += duration_ms
            case ("truncate", count):
                end_offset = max(0, (twin.log[-1].offset + 1 if twin.log else 0) - count)
                known.truncate(end_offset)
                twin.log = [each for each in twin.log if each.offset < end_offset]
            case _:
                # Another broker leads, and reads the log from its start.
                known = KnownKeys(WINDOW_MS, KEYS_MAX)
                for each in twin.log:
                    known.add(each.record, each.offset, 7, each.at_ms)
        assert len(known) <= len(twin.log)


def test_more_keys_than_a_log_may_have_are_forgotten_from_the_oldest_on(monkeypatch) -> None:
    monkeypatch.setattr(dedup, "DEDUP_KEYS_MAX", 3)
    known = KnownKeys(WINDOW_MS, 10)
    for offset in range(5):
        known.add(KeyedRecord(b"%d" % offset, b""), offset, 0, 0)
    assert len(known) == 3
    assert ask(known, KeyedRecord(b"1", b""), 0) is None
    assert ask(known, KeyedRecord(b"2", b""), 0) == 2


def test_expired_keys_are_freed_step_by_step_and_refuse_none_meanwhile(monkeypatch) -> None:
    monkeypatch.setattr(dedup, "EXPIRED_AT_ONCE", 2)
    known = KnownKeys(WINDOW_MS, 5)
    for offset in range(5):
        known.add(KeyedRecord(b"%d" % offset, b""), offset, 0, 0)
    again = KeyedRecord(b"4", b"another")
    assert ask(known, again, WINDOW_MS) is None, "its window has passed"
    known.add(again, 5, 0, WINDOW_MS)
    assert len(known) == 4
    for _ in range(2):
        assert ask(known, again, WINDOW_MS) == 5
    assert len(known) == 1


def test_settings_apply_to_keys_that_are_remembered() -> None:
    known, record = KnownKeys(WINDOW_MS, 1), KeyedRecord(b"a", b"")
    known.add(record, 0, 0, 0)
    known.configure(2 * WINDOW_MS, 2)
    assert ask(known, record, WINDOW_MS) == 0
    assert ask(known, KeyedRecord(b"b", b""), WINDOW_MS) is None
    known.configure(1, 2)
    assert ask(known, record, WINDOW_MS) is None


def test_errors_say_where_the_first_record_is() -> None:
    known = KnownKeys(WINDOW_MS, 1)
    known.add(KeyedRecord(b"a", b"1"), 41, 0, 0)
    with pytest.raises(ApiError, match="at offset 41") as refused:
        known.find(KeyedRecord(b"a", b"2"), 0)
    assert refused.value.error is ErrorCode.DUPLICATE_RESOURCE
