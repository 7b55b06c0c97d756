"""Counters: requests that are recognized as repetitions count exactly as those that are decoded."""

import asyncio
import random
from pathlib import Path

import pytest

from runnel.broker.runtime.pipeline import Pipeline
from runnel.messages.fetch import FetchRequest, FetchResponse
from runnel.messages.produce import ProduceRequest
from runnel.model.errors import ErrorCode
from runnel.observe.counters import TopicTraffic
from runnel.wire import decode
from runnel.wire.frame import read_response_header
from tests.broker.requests import batch, fetch_from, produce_to
from tests.broker.test_template_runs import Connection, any_frame, content, wire
from tests.broker.world import BrokerWorld


def counts_of(world: BrokerWorld) -> dict[str, object]:
    """Everything that was counted, except for durations."""
    total = [step for step in world.broker.traffic.total() if step is not None][-1]
    counts: dict[str, object] = {name: getattr(total, name) for name in TopicTraffic.__slots__}
    topic = world.broker.traffic.of("events")
    counts |= {f"events {name}": getattr(topic, name) for name in TopicTraffic.__slots__}
    requests = world.broker.requests
    for message in (ProduceRequest, FetchRequest):
        counts[message.__name__] = requests.by_api[message.api_key].total
    counts["errors"] = {key: count for key, count in requests.errors.items() if key[0] in (0, 1)}
    return counts


@pytest.mark.parametrize("seed", range(5))
def test_repetitions_count_as_decoded_requests_do(tmp_path: Path, seed: int) -> None:
    async def scenario() -> None:
        async with BrokerWorld(tmp_path / "a") as one, BrokerWorld(tmp_path / "b") as other:
            for world in (one, other):
                await world.create("events", 2)
            together = Connection(Pipeline(one.broker), uses_templates=True)
            alone = Connection(Pipeline(other.broker), uses_templates=False)
            source = random.Random(seed)
            runs = 0
            for turn in range(40):
                is_fetch = turn > 5 and source.random() < 0.4
                frame = any_frame(source, turn, is_fetch=is_fetch)
                frames = [frame] * source.randrange(1, 12) + [any_frame(source, turn, is_fetch=is_fetch)]
                replies = together.receive(b"".join(frames))
                runs += sum(reply.count > 1 for reply in replies)
                for each in frames:
                    alone.responses(each)
            assert runs
            assert counts_of(one) == counts_of(other)
            assert counts_of(one)["records_in"] and counts_of(one)["errors"]

    asyncio.run(scenario())


def test_what_is_sent_is_what_is_counted(tell) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("events", 2)
        connection = Connection(Pipeline(world.broker), uses_templates=True)
        batches = [batch(*[b"v" * size] * records) for size, records in ((1, 1), (300, 5), (10, 2))]
        for number, records in enumerate(batches):
            connection.responses(wire(produce_to("events", (0, records), acks=1), 9, number))
        traffic = world.broker.traffic.of("events")
        assert (traffic.records_in, traffic.bytes_in, traffic.produces) == (8, sum(map(len, batches)), 3)
        assert traffic.batches[:4] == [1, 1, 0, 1]
        sent = 0
        frames = b"".join(wire(fetch_from("events", (0, offset)), 12, offset) for offset in (0, 0, 6, 1))
        for reply in connection.receive(frames):
            data = memoryview(content(reply))
            while data:
                size = int.from_bytes(data[:4]) + 4
                _, position = read_response_header(data[4:size], True)
                response = decode(FetchResponse, 12, data[4:size], position)
                sent += len(response.responses[0].partitions[0].records or b"")
                data = data[size:]
        assert sent > 0
        assert (traffic.bytes_out, traffic.all_fetches, traffic.failed_fetches) == (sent, 4, 0)

    tell(scenario)


def test_failures_count_where_they_belong(tell) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("events", 1)
        connection = Connection(Pipeline(world.broker), uses_templates=True)
        damaged = bytearray(batch(b"x" * 50))
        damaged[-1] ^= 1
        produced = wire(produce_to("events", (0, bytes(damaged)), (7, batch(b"y"))), 9, 0)
        fetched = wire(fetch_from("events", (0, 99), (7, 0)), 12, 1)
        connection.responses(produced + fetched)
        traffic, unknown = world.broker.traffic.of("events"), world.broker.traffic.unknown()
        assert (traffic.failed_produces, unknown.failed_produces) == (1, 1)
        assert (traffic.failed_fetches, unknown.failed_fetches) == (1, 1)
        assert {key: count for key, count in world.broker.requests.errors.items() if key[0] in (0, 1)} == {
            (0, ErrorCode.CORRUPT_MESSAGE.code): 1,
            (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code): 1,
            (1, ErrorCode.OFFSET_OUT_OF_RANGE.code): 1,
            (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code): 1,
        }
        assert traffic.records_in == traffic.bytes_in == 0

    tell(scenario)


def test_duplicates_are_requests_and_no_records(tell) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("events", 1)
        connection = Connection(Pipeline(world.broker), uses_templates=True)
        records = batch(b"once", producer_id=5, producer_epoch=0, base_sequence=0)
        frame = wire(produce_to("events", (0, records), acks=1), 9, 0)
        for _ in range(2):
            connection.responses(frame * 3)
        traffic = world.broker.traffic.of("events")
        assert (traffic.records_in, traffic.bytes_in, traffic.duplicates) == (1, len(records), 5)
        assert traffic.produces == 6

    tell(scenario)
