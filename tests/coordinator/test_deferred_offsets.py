"""Offset commits of a log that is being loaded: decoded by fixed layouts where possible."""

from hypothesis import given
from hypothesis import strategies as st

from runnel.coordinator.group import deferred_offsets
from runnel.coordinator.group.deferred_offsets import DeferredOffsets, read_value
from runnel.coordinator.group.offset_store import CommittedOffset, OffsetStore
from runnel.coordinator.group.records import offset_record
from runnel.model.ids import NO_ID
from runnel.schemas.coordinator import encode_key, encode_value
from runnel.wire import MalformedMessage

commits = st.builds(
    CommittedOffset,
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.sampled_from(["", "", "a", "metadata of 18 byte"]),
    st.integers(-1, 2**63 - 1),
    st.sampled_from([-1, -1, 5]),
    st.sampled_from([NO_ID, bytes(range(16))]),
)


@given(commits)
def test_commits_are_decoded_as_they_were_encoded(committed: CommittedOffset) -> None:
    record = offset_record("group", "topic", 0, committed)
    assert record.value is not None
    encoded = encode_value(record.value, record.version)
    found = read_value(encoded)
    assert found == deferred_offsets._read_any_value(encoded)
    if record.version != 1:
        assert found == committed


@given(st.binary(min_size=24, max_size=24) | st.binary(min_size=42, max_size=42), st.integers(0, 5))
def test_other_bytes_of_the_same_length_are_decoded_in_full(data: bytes, version: int) -> None:
    encoded = version.to_bytes(2, "big") + data[2:]
    try:
        expected = deferred_offsets._read_any_value(encoded)
    except MalformedMessage:
        expected = None
    try:
        assert read_value(encoded) == expected
    except MalformedMessage:
        assert expected is None


def test_the_last_commit_of_each_offset_is_replayed_in_slices() -> None:
    store = OffsetStore()
    deferred = DeferredOffsets(store)
    record_offset = 0
    for offset in range(3):
        for partition in range(5):
            for group in ("one", "two"):
                committed = CommittedOffset(offset, -1, "", 0, -1, NO_ID)
                record = offset_record(group, "t", partition, committed)
                assert record.value is not None
                assert deferred.defer(
                    encode_key(record.key), encode_value(record.value, record.version), record_offset
                )
                record_offset += 1
    groups: set[str] = set()
    while deferred.replay(3):
        groups |= deferred.replayed
    assert groups == {"one", "two"}
    for group in groups:
        found = {(topic, partition, one.offset) for topic, partition, one in store.of(group).all_committed()}
        assert found == {("t", partition, 2) for partition in range(5)}
