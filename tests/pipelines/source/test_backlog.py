"""The batches that a stream cuts a backlog into, with a real broker."""

import time
from types import SimpleNamespace

import pyarrow as pa
import pytest

from runnel.pipelines.sink.columns import Columns
from runnel.pipelines.sink.options import write_options
from runnel.pipelines.sink.task import TaskWriter
from runnel.pipelines.source import stream_reader
from runnel.pipelines.source.stream_reader import StreamReader
from runnel.testing import Broker
from tests.pipelines.source.tables import stream, without_ids

VALUE_ONLY = Columns(value=0, key=None, topic=None, partition=None, headers=None, timestamp=None)
BACKLOG = 1_050_000


def fill(broker: Broker, topic: str, count: int) -> None:
    with broker.client() as client:
        client.create_topic(topic, partitions=2)
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic, "delivery": "at-least-once"}
    rows = pa.record_batch([pa.array([b"0123456789"], pa.binary()).take([0] * count)], names=["value"])
    TaskWriter(write_options(given), VALUE_ONLY, None, 0).write([rows])


def batches(reader: StreamReader) -> list[int]:
    """How many offsets each batch takes, until nothing is left."""
    counts: list[int] = []
    position = reader.initialOffset()
    while True:
        following = reader.latestOffset(position, reader.getDefaultReadLimit())
        if following == position:
            return counts
        counts.append(total(following) - total(position))
        position = following


def total(table: dict[str, dict[str, int]]) -> int:
    return sum(offset for numbers in without_ids(table).values() for offset in numbers.values())


def test_the_first_batch_after_a_backlog_is_limited(runnel: Broker) -> None:
    fill(runnel, "orders", BACKLOG)
    reader = stream(runnel, subscribe="orders", startingOffsets="earliest")
    counts = batches(reader)
    assert len(counts) == 2 and counts[0] <= 1_000_000 and sum(counts) == BACKLOG
    reader.stop()
    reader = stream(runnel, subscribe="orders", startingOffsets="earliest", maxBytesPerTrigger=4 << 20)
    counts = batches(reader)
    assert len(counts) > 3 and sum(counts) == BACKLOG
    assert max(counts) * 10 <= 4 << 20, "values alone are ten bytes each"
    reader.stop()


def test_a_batch_waits_for_its_minimum(runnel: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    clock = SimpleNamespace(monotonic=lambda: now_s[0], sleep=time.sleep)
    monkeypatch.setattr(stream_reader, "time", clock)
    fill(runnel, "orders", 3)
    reader = stream(
        runnel,
        subscribe="orders",
        startingOffsets="earliest",
        minOffsetsPerTrigger=4,
        maxTriggerDelay="1m",
    )
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert total(first) == 3, "a query begins with what is there"
    with runnel.client() as client:
        for _ in range(3):
            client.send("orders", b"x", partition=0)
        now_s[0] += 59.0
        assert reader.latestOffset(first, limit) == first
        client.send("orders", b"x", partition=1)
        second = reader.latestOffset(first, limit)
        assert total(second) == 7
        client.send("orders", b"x", partition=1)
        assert reader.latestOffset(second, limit) == second
        now_s[0] += 60.0
        assert total(reader.latestOffset(second, limit)) == 8
    reader.stop()
