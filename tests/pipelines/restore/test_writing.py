"""Rows are restored to their partitions, in order and once, also after crashes of a writer."""

from dataclasses import replace

import pyarrow as pa
import pytest

from runnel.pipelines.errors import BadOption, PipelineError, TargetInUse
from runnel.pipelines.restore.writing import RestoreTarget, write_rows
from tests.pipelines.restore.steps import end_it, leave_open

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def rows(offsets: list[int], partition: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "partition": partition,
                "offset": offset,
                "timestamp_ms": 1000 + offset,
                "key": b"k",
                "value": None if offset % 5 == 4 else b"%d" % offset,
                "headers": [{"key": "own", "value": b"x"}] if offset % 2 else None,
            }
            for offset in offsets
        ],
        SCHEMA,
    )


@pytest.fixture
def target(runnel):
    with runnel.client() as client:
        client.create_topic("new", partitions=2, settings={"retention.ms": "-1"})
    return RestoreTarget(runnel.bootstrap_servers, "new", "orders", transaction_records=3)


def restored(broker) -> list[tuple[int, int]]:
    with broker.client() as client:
        messages = client.read("new", committed_only=True)
    return [(message.partition, message.timestamp_ms - 1000) for message in messages]


def test_rows_keep_partition_order_timestamp_and_headers(runnel, target):
    results = list(write_rows(target, [rows([0, 1, 4]), rows([7]), rows([2], partition=1)]))
    assert [result.to_pylist()[0] for result in results] == [
        {"partition": 0, "records": 4, "records_before": 0},
        {"partition": 1, "records": 1, "records_before": 0},
    ]
    assert sorted(restored(runnel)) == [(0, 0), (0, 1), (0, 4), (0, 7), (1, 2)]
    with runnel.client() as client:
        first, second, third, _ = client.read("new", partitions=[0], committed_only=True)
    assert (first.value, second.value, third.value) == (b"0", b"1", None)
    assert [name for name, _ in second.headers] == [
        "own",
        "runnel.restore.topic",
        "runnel.restore.partition",
        "runnel.restore.offset",
        "runnel.restore.timestamp",
    ]
    assert dict(second.headers)["runnel.restore.timestamp"] == b"1001"


@pytest.mark.parametrize("after", [1, 3, 4, 7])
def test_a_writer_that_died_is_followed_by_one_that_resumes(runnel, target, after):
    def dies():
        for offset in range(after):
            yield rows([offset])
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        list(write_rows(target, dies()))
    (result,) = write_rows(target, [rows(list(range(10)))])
    assert restored(runnel) == [(0, offset) for offset in range(10)]
    assert result.to_pylist()[0]["records_before"] == (after - 1) // 3 * 3
    (again,) = write_rows(target, [rows(list(range(10)))])
    assert again.to_pylist() == [{"partition": 0, "records": 0, "records_before": 10}]


def test_a_writer_that_was_thought_dead_is_fenced(runnel, target):
    def pauses():
        yield rows([0, 1, 2, 3])
        list(write_rows(target, [rows(list(range(6)))]))
        yield rows([4, 5])

    with pytest.raises(PipelineError):
        list(write_rows(target, pauses()))
    assert restored(runnel) == [(0, offset) for offset in range(6)]


def test_a_partition_with_records_of_others_is_refused_unless_asked_for(runnel, target):
    with runnel.client() as client:
        client.send("new", b"mine", partition=0, timestamp_ms=999)
    with pytest.raises(TargetInUse, match="--append"):
        list(write_rows(target, [rows([0])]))
    behind = RestoreTarget(runnel.bootstrap_servers, "new", "orders", is_appending=True)
    list(write_rows(behind, [rows([0])]))
    list(write_rows(behind, [rows([0, 1])]))
    assert restored(runnel) == [(0, -1), (0, 0), (0, 1)]


def test_what_others_have_open_does_not_hide_what_is_restored(runnel, target, monkeypatch):
    behind = replace(target, is_appending=True)
    with runnel.client() as client:

        def others_begin_meanwhile():
            yield rows([0])
            client.run(lambda cluster: leave_open(cluster, "new"))
            yield rows([1, 2, 3, 4])

        list(write_rows(behind, others_begin_meanwhile()))
        with monkeypatch.context() as patched:
            patched.setattr("runnel.pipelines.restore.restore_state.STABLE_TIMEOUT_S", 0.2)
            with pytest.raises(TargetInUse, match="runnel txn list"):
                list(write_rows(behind, [rows(list(range(5)))]))
        client.run(end_it)
    (again,) = write_rows(behind, [rows(list(range(5)))])
    assert again.to_pylist() == [{"partition": 0, "records": 0, "records_before": 5}]
    assert restored(runnel) == [(0, offset) for offset in range(5)]


def test_what_was_restored_up_to_a_limit_is_not_restored_further(runnel, target):
    # Of 0 to 4, the records 1 and 3 are too young.
    limited = replace(target, until_ms=1004)
    list(write_rows(limited, [rows([0, 2, 4])]))
    with pytest.raises(BadOption, match=r"new-0 was restored up to @1004, and not up to @2000: .*--to NAME"):
        list(write_rows(replace(target, until_ms=2000), [rows([0, 1, 2, 3, 4])]))
    with pytest.raises(BadOption, match="not up to its end"):
        list(write_rows(target, [rows([0, 1, 2, 3, 4])]))
    with pytest.raises(BadOption, match="not up to @1004 0:9"):
        list(write_rows(replace(limited, until_offsets={0: 9}), [rows([0, 2, 4])]))
    # The same run resumes, and another partition has no separate limit.
    (result,) = write_rows(replace(limited, until_offsets={1: 9}), [rows([0, 2, 4, 6])])
    assert result.to_pylist() == [{"partition": 0, "records": 1, "records_before": 3}]
    assert restored(runnel) == [(0, offset) for offset in (0, 2, 4, 6)]


def test_what_was_restored_without_a_limit_gets_none_later(runnel, target):
    list(write_rows(target, [rows([0, 1])]))
    with pytest.raises(BadOption, match="restored up to its end"):
        list(write_rows(replace(target, until_ms=1001), [rows([0, 1])]))
    list(write_rows(target, [rows([0, 1, 2])]))
    assert restored(runnel) == [(0, 0), (0, 1), (0, 2)]
