"""Offsets of a stream: stored as JSON, and compared with the current partitions."""

import json

from hypothesis import given
from hypothesis import strategies as st

from runnel.model.ids import NO_ID, TopicPartition
from runnel.pipelines.archive.starting import checkpointed_offsets
from runnel.pipelines.queries import stream_batch
from runnel.pipelines.source.planning import from_json
from runnel.pipelines.source.stream_offsets import StreamOffsets, stream_changes

ONE, OTHER = bytes(15) + b"\x01", bytes(15) + b"\x02"
ORDERS = TopicPartition("orders", 0)

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d_e-f"]), st.integers(0, 9))
ids = st.dictionaries(
    st.sampled_from(["a", "b.c", "d_e-f"]),
    st.sampled_from([NO_ID, ONE, OTHER]) | st.binary(min_size=16, max_size=16),
)
stream_offsets = st.builds(StreamOffsets.of, st.dictionaries(partitions, st.integers(0, 10**12)), ids)


@given(stream_offsets)
def test_json_is_readable_as_plain_offsets(offsets: StreamOffsets) -> None:
    table = json.loads(json.dumps(offsets.to_json()))
    assert StreamOffsets.from_json(table) == offsets
    assert from_json(table) == offsets.offsets
    assert json.dumps(StreamOffsets.from_json(table).to_json()) == json.dumps(table), "Spark compares texts"


def test_other_readers_of_checkpoints(tmp_path) -> None:
    table = StreamOffsets({ORDERS: 5}, {"orders": ONE}).to_json()
    assert table == {"orders": {"0": 5}, "orders id AAAAAAAAAAAAAAAAAAAAAQ": {}}
    for name, text in (("offsets", f"v1\n{{}}\n{json.dumps(table)}"), ("commits", "v1\n{}")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0").write_text(text)
    assert checkpointed_offsets(str(tmp_path)) == {ORDERS: 5}
    latest = StreamOffsets({ORDERS: 9}, {"orders": OTHER}).to_json()
    progress = {
        "batchId": 0,
        "numInputRows": 5,
        "durationMs": {},
        "sources": [{"endOffset": json.dumps(table), "latestOffset": json.dumps(latest)}],
    }
    assert stream_batch("q", progress).lag == 4


@given(stream_offsets, stream_offsets)
def test_changes_of_a_stream(starts: StreamOffsets, ends: StreamOffsets) -> None:
    changes = stream_changes(starts, ends)
    assert set(changes.new) == ends.offsets.keys() - starts.offsets.keys()
    assert set(changes.deleted) == starts.offsets.keys() - ends.offsets.keys()
    for partition in starts.offsets.keys() & ends.offsets.keys():
        before, now = (offsets.topic_ids.get(partition.topic) for offsets in (starts, ends))
        is_other = before is not None and now is not None and before != now
        is_shorter = ends.offsets[partition] < starts.offsets[partition]
        assert (partition in changes.recreated) == is_other
        assert (partition in changes.truncated) == (is_shorter and not is_other)
        is_surely_the_same = before is not None and before == now
        assert (partition in changes.from_earliest) == (is_other or (is_shorter and not is_surely_the_same))
    assert {*changes.new} <= {*changes.from_earliest}


def test_unknown_ids_are_omitted() -> None:
    offsets = StreamOffsets.of({ORDERS: 5}, {"orders": NO_ID, "payments": ONE})
    assert offsets == StreamOffsets({ORDERS: 5}) and offsets.to_json() == {"orders": {"0": 5}}
