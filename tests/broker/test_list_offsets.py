"""ListOffsets over the wire: special timestamps, timestamps, and versions."""

import pytest

from runnel.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from tests.broker.requests import NOW_MS, batch, produce_to

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)


def asking(timestamp: int, index: int = 0, epoch: int = -1, isolation: int = 0) -> ListOffsetsRequest:
    topic = ListOffsetsTopic("events", [ListOffsetsPartition(index, epoch, timestamp)])
    return ListOffsetsRequest(-1, isolation, [topic])


async def filled(world):
    await world.create("events")
    client = await world.connect()
    # Offsets 0-1, 2-3, 4-5; the second batch is the newest.
    for seconds in (0, 20, 10):
        await client.ask(
            produce_to("events", (0, batch(b"a", b"b", timestamp_ms=NOW_MS + seconds * 1000))), 9
        )
    return client


async def found(client, request, version):
    partition = (await client.ask(request, version)).topics[0].partitions[0]
    return partition.error_code, partition.offset, partition.timestamp


@pytest.mark.parametrize("version", range(1, 12))
def test_earliest_latest_and_timestamps_in_every_version(tell, version):
    async def scenario(world) -> None:
        client = await filled(world)
        assert await found(client, asking(EARLIEST), version) == (0, 0, -1)
        assert await found(client, asking(LATEST), version) == (0, 6, -1)
        assert await found(client, asking(NOW_MS + 1), version) == (0, 1, NOW_MS + 1)
        assert await found(client, asking(NOW_MS + 2), version) == (0, 2, NOW_MS + 20_000)
        assert await found(client, asking(NOW_MS + 99_000), version) == (0, -1, -1)

    tell(scenario)


@pytest.mark.parametrize(
    ("timestamp", "since", "expected"),
    [
        (MAX_TIMESTAMP, 7, (0, 3, NOW_MS + 20_001)),
        (EARLIEST_LOCAL, 8, (0, 0, -1)),
        (LATEST_TIERED, 9, (0, -1, -1)),
        (PENDING_UPLOAD, 11, (0, -1, -1)),
        (-7, 12, None),
    ],
)
def test_special_timestamps_require_their_version(tell, timestamp, since, expected):
    async def scenario(world) -> None:
        client = await filled(world)
        for version in range(max(1, since - 2), 12):
            outcome = await found(client, asking(timestamp), version)
            assert outcome == (expected if version >= since else (ErrorCode.UNSUPPORTED_VERSION.code, -1, -1))

    tell(scenario)


def test_errors_are_per_partition(tell):
    async def scenario(world) -> None:
        client = await filled(world)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
        assert (await found(client, asking(LATEST, index=1), 7))[0] == unknown
        world.broker.partitions[TopicPartition("events", 0)].replica.epoch = 3
        assert (await found(client, asking(LATEST, epoch=2), 7))[0] == ErrorCode.FENCED_LEADER_EPOCH.code
        assert (await found(client, asking(LATEST, epoch=4), 7))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH.code
        assert await found(client, asking(LATEST, epoch=3, isolation=1), 7) == (0, 6, -1)
        twice = asking(LATEST)
        twice.topics[0].partitions *= 2
        response = await client.ask(twice, 7)
        assert {p.error_code for p in response.topics[0].partitions} == {ErrorCode.INVALID_REQUEST.code}

    tell(scenario)
