"""Checkpoints, manifest, swap file and names: round trips, and detection of damage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.batch.checksum import crc32c
from runnel.log import checkpoints as text
from runnel.log.checkpoints import DamagedCheckpoint
from runnel.log.clean_shutdown import decode_clean_shutdown, encode_clean_shutdown
from runnel.log.manifest import DamagedManifest, LogEntry, SegmentEntry, decode_manifest, encode_manifest
from runnel.log.names import LOG, offset_name, offset_of, partition_of
from runnel.log.swap import DamagedSwap, Swap, decode_swap, encode_swap
from runnel.model.ids import TopicPartition

topics = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
partitions = st.builds(TopicPartition, topics, st.integers(0, 10**5))
offsets = st.integers(0, 2**63 - 1)
ids = st.binary(min_size=16, max_size=16)
segments = st.builds(
    SegmentEntry, offsets, offsets, st.integers(0, 2**31), st.integers(-2, 2**60), st.integers(-2, 2**60)
)
logs = st.builds(
    LogEntry,
    ids,
    offsets,
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 2**31 - 1), offsets), max_size=3),
    st.lists(segments, max_size=3),
)


@given(st.dictionaries(partitions, offsets, max_size=5))
def test_offsets_survive(found) -> None:
    assert text.decode_offsets(text.encode_offsets(found)) == found


def test_offsets_are_kafkas_text() -> None:
    assert text.encode_offsets({TopicPartition("a", 3): 7}) == b"0\n1\na 3 7\n"


@pytest.mark.parametrize(
    "data", [b"", b"1\n0\n", b"0\n2\na 3 7\n", b"0\n1\na 3\n", b"0\n1\na x 7\n", b"\xff\xff"]
)
def test_damaged_offsets_are_detected(data: bytes) -> None:
    with pytest.raises(DamagedCheckpoint):
        text.decode_offsets(data)


@given(st.dictionaries(partitions, offsets, min_size=1, max_size=5), st.data())
def test_a_truncated_checkpoint_is_detected(found, data) -> None:
    lines = text.encode_offsets(found).splitlines(keepends=True)
    with pytest.raises(DamagedCheckpoint):
        text.decode_offsets(b"".join(lines[: data.draw(st.integers(0, len(lines) - 1))]))


def test_epochs_survive_and_must_ascend() -> None:
    assert text.decode_epochs(text.encode_epochs(((0, 0), (3, 10)))) == [(0, 0), (3, 10)]
    with pytest.raises(DamagedCheckpoint):
        text.decode_epochs(b"0\n2\n3 0\n3 10\n")
    with pytest.raises(DamagedCheckpoint):
        text.decode_epochs(b"0\n1\n3\n")


@given(ids)
def test_partition_metadata_survives(topic_id: bytes) -> None:
    assert text.decode_partition_metadata(text.encode_partition_metadata(topic_id)) == topic_id


@pytest.mark.parametrize("data", [b"", b"version: 0\n", b"version: 0\ntopic_id: abc"])
def test_damaged_partition_metadata_is_detected(data: bytes) -> None:
    with pytest.raises(DamagedCheckpoint):
        text.decode_partition_metadata(data)


def test_properties_survive_with_comments_left_out() -> None:
    assert text.decode_properties(b"# made on a Monday\na=1\nb = x=y \n") == {"a": "1", "b": "x=y"}
    assert text.decode_properties(text.encode_properties({"a": "1", "b": "2"})) == {"a": "1", "b": "2"}


@given(st.dictionaries(partitions, logs, max_size=4), st.integers(-1, 2**40))
def test_the_manifest_survives(found, broker_epoch) -> None:
    decoded = decode_manifest(encode_manifest(found, broker_epoch))
    assert (decoded.logs, decoded.broker_epoch) == (found, broker_epoch)


def test_a_manifest_of_an_earlier_release_is_read() -> None:
    body = b'[["t",0,"AAAAAAAAAAAAAAAAAAAAAQ",3,false,[[1,3]],[[3,5,70,8,9]]]]'
    decoded = decode_manifest(b"runnel-manifest 1 %08x\n" % crc32c(body) + body)
    entry = decoded.logs[TopicPartition("t", 0)]
    assert (decoded.broker_epoch, entry.log_start_offset, entry.epochs) == (None, 3, [(1, 3)])


@given(st.integers(-1, 2**62))
def test_the_mark_of_a_clean_shutdown_survives(broker_epoch: int) -> None:
    data = encode_clean_shutdown(broker_epoch)
    assert data == b'{"version":0,"brokerEpoch":%d}' % broker_epoch
    assert decode_clean_shutdown(data) == broker_epoch


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"brokerEpoch":"x"}', b"\xff"])
def test_a_mark_without_an_epoch_has_none(data: bytes) -> None:
    assert decode_clean_shutdown(data) == -1


@given(st.dictionaries(partitions, logs, min_size=1, max_size=3), st.data())
def test_a_damaged_manifest_is_detected(found, data) -> None:
    whole = bytearray(encode_manifest(found, 7))
    position = data.draw(st.integers(0, len(whole) - 1))
    whole[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(DamagedManifest):
        decode_manifest(bytes(whole))
    with pytest.raises(DamagedManifest):
        decode_manifest(encode_manifest(found, 7)[:position])


@given(st.none() | offsets, st.lists(offsets, max_size=4), st.data())
def test_a_damaged_swap_file_is_detected(base_offset, replaced, data) -> None:
    swap = Swap(base_offset, replaced)
    whole = encode_swap(swap)
    assert decode_swap(whole) == swap
    with pytest.raises(DamagedSwap):
        decode_swap(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(offsets)
def test_file_names_hold_offsets_and_sort_as_they_do(offset: int) -> None:
    assert offset_of(offset_name(offset, LOG), LOG) == offset
    assert offset_of(offset_name(offset, LOG) + ".deleted", LOG) is None
    assert (offset_name(offset, LOG) < offset_name(2**62, LOG)) == (offset < 2**62)


@given(partitions)
def test_folder_names_hold_partitions(partition: TopicPartition) -> None:
    assert partition_of(str(partition)) == partition


@pytest.mark.parametrize(
    "name", ["", "a", "-1", "a-", "a-x", "a-01", "a-0.1-delete", "meta.properties", "a-٣"]
)
def test_other_folders_are_nobodys_partition(name: str) -> None:
    assert partition_of(name) is None
