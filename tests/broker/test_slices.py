"""Large requests are served in slices: nothing is lost or named twice, and others are served in between."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.batch.build import build_batch
from runnel.batch.compression import Compression
from runnel.batch.records import Record
from runnel.broker.apis.handlers import APIS
from runnel.broker.apis.sliced import SLICINGS
from runnel.broker.runtime import context
from runnel.broker.runtime.promise import MaybePromise, Promise, settled
from runnel.broker.runtime.slices import cut, merge, weight, while_lent
from runnel.broker.runtime.turn import Turn
from runnel.messages.api_versions import ApiVersionsRequest
from runnel.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from runnel.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from runnel.messages.metadata import MetadataRequest, MetadataRequestTopic
from runnel.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from runnel.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from runnel.messages.produce import ProduceRequest
from runnel.messages.registry import api
from runnel.model.errors import ErrorCode
from runnel.model.limits import (
    FETCH_PARTITIONS_MAX,
    INSPECTED_RECORDS_MAX,
    MEMBER_METADATA_BYTES_MAX,
    PRODUCED_PER_SLICE,
    SLICE_ELEMENTS,
    SLICE_RECORDS_BYTES,
)
from runnel.ports.service import Loan, Session
from runnel.wire import fields_of
from runnel.wire.primitives import ArrayOf, StructOf
from tests.broker.requests import NOW_MS, batch, fetch_from, only, produce_to, values

REQUEST_ARRAYS = ("groups", "topics", "partition_indexes")
RESPONSE_ARRAYS = ("groups", "topics", "partitions")

GROUPS = st.lists(st.lists(st.integers(0, 30), max_size=6), max_size=6)


def offset_fetch(groups: list[list[int]]) -> OffsetFetchRequest:
    """Groups with topics, each with so many partitions."""
    return OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                f"group-{number}",
                topics=[
                    OffsetFetchRequestTopics(name=f"topic-{index}", partition_indexes=list(range(count)))
                    for index, count in enumerate(topics)
                ],
            )
            for number, topics in enumerate(groups)
        ]
    )


def answer(request: OffsetFetchRequest) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(
                group.group_id,
                [
                    OffsetFetchResponseTopics(
                        topic.name,
                        partitions=[
                            OffsetFetchResponsePartitions(index) for index in topic.partition_indexes
                        ],
                    )
                    for topic in group.topics or ()
                ],
            )
            for group in request.groups
        ]
    )


@given(GROUPS.filter(bool), st.integers(1, 20))
def test_the_slices_of_a_request_have_the_response_of_the_whole(groups: list[list[int]], size: int) -> None:
    request = offset_fetch(groups)
    expected = answer(request)
    whole: OffsetFetchResponse | None = None
    for part, joined_levels in cut(request, REQUEST_ARRAYS, size):
        assert isinstance(part, OffsetFetchRequest)
        # A group, a topic and a partition may have to share a slice that has room for one.
        assert weight(part, REQUEST_ARRAYS) <= size + 3
        if whole is None:
            whole = answer(part)
        else:
            merge(whole, answer(part), RESPONSE_ARRAYS, joined_levels)
    assert whole == expected
    assert request == offset_fetch(groups)


@pytest.mark.parametrize("api_key", SLICINGS)
def test_the_arrays_of_every_slicing_exist(api_key: int) -> None:
    messages = api(api_key)
    for slicing in SLICINGS[api_key]:
        for message, arrays in ((messages.request, slicing.request), (messages.response, slicing.response)):
            struct = message
            for array in arrays:
                (field,) = [field for field in fields_of(struct) if field.name == array]
                assert isinstance(field.type, ArrayOf), f"{APIS[api_key].module}: {array}"
                if isinstance(field.type.element, StructOf):
                    struct = field.type.element.struct


def many_offsets(count: int) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(count)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic("events", partitions)])


def test_other_connections_are_served_between_slices(tell) -> None:
    """Without slices the response to the large request, which came first, would also be the first."""

    async def story(world) -> None:
        await world.create("events")
        large, small = await world.connect(), await world.connect()
        order = []

        async def ask(client, request, version: int, name: str):
            response = await client.ask(request, version)
            order.append(name)
            return response

        await small.ask(ApiVersionsRequest("test", "1"), 3)
        first = asyncio.create_task(ask(large, many_offsets(20 * SLICE_ELEMENTS), 7, "large"))
        while not world.broker._tasks:
            await asyncio.sleep(0)
        second = asyncio.create_task(ask(small, ApiVersionsRequest("test", "1"), 3, "small"))
        response = await first
        await second
        assert order == ["small", "large"]
        (topic,) = response.topics
        assert [one.partition_index for one in topic.partitions] == list(range(20 * SLICE_ELEMENTS))
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
        assert [one.error_code for one in topic.partitions[:3]] == [0, unknown, unknown]

    tell(story)


def test_a_large_produce_keeps_its_records(tell) -> None:
    async def story(world) -> None:
        count = 2 * SLICE_ELEMENTS
        await world.create("events", 100)
        client = await world.connect()
        batches = [(index % 100, batch(b"%d" % index)) for index in range(count)]
        client.send(produce_to("events", *batches), 9)
        # Received over the memory of the first while that is still being served.
        client.send(produce_to("events", *((index, batch(b"later")) for index in range(100))), 9)
        response = await client.receive()
        results = response.responses[0].partition_responses
        assert [(one.index, one.error_code) for one in results] == [
            (index % 100, 0) for index in range(count)
        ]
        assert [one.base_offset for one in results] == [index // 100 for index in range(count)]
        later = (await client.receive()).responses[0].partition_responses
        assert {one.base_offset for one in later} == {count // 100}

    tell(story)


def test_a_large_produce_without_acks_holds_back_the_next_request(tell) -> None:
    async def story(world) -> None:
        count = 4 * SLICE_ELEMENTS
        await world.create("events", 100)
        client = await world.connect()
        large = produce_to("events", *((index % 100, batch(b"%d" % index)) for index in range(count)), acks=0)
        client.send(large, 9)
        client.sent.clear()
        # It must neither overtake the later slices nor be taken for an answer to the first request.
        later = await client.ask(produce_to("events", *((index, batch(b"x")) for index in range(100))), 9)
        results = later.responses[0].partition_responses
        assert {(one.error_code, one.base_offset) for one in results} == {(0, count // 100)}
        read = await client.ask(fetch_from("events", (7, 0)), 12)
        assert values(only(read).records) == [b"%d" % index for index in range(7, count, 100)] + [b"x"]

    tell(story)


def test_a_large_produce_without_acks_closes_after_an_error(tell, caplog) -> None:
    """As a small one does: what can be appended is."""

    async def story(world) -> None:
        count = 4 * SLICE_ELEMENTS
        await world.create("events", 100)
        client = await world.connect()
        batches = [(index % 100, batch(b"x")) for index in range(count)]
        client.send(produce_to("events", (100, batch(b"lost")), *batches, acks=0), 9)
        assert await client.is_closed()
        assert world.broker.partition("events", 99).log.end_offset == count // 100

    tell(story)
    assert "produce with acks=0 to events-100" in caplog.text


@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_batches_whose_records_are_looked_at_are_served_one_by_one(tell, version, compression) -> None:
    """Each is within the limit; together they would keep other connections waiting."""

    async def story(world) -> None:
        await world.create("table", 6, **{"cleanup.policy": "compact"})
        client = await world.connect()
        records = [Record(i, NOW_MS, b"key", b"") for i in range(INSPECTED_RECORDS_MAX // 5)]
        data = bytes(build_batch(records, compression=compression))
        topic = world.topic_id("table") if version == 13 else "table"
        client.send(produce_to(topic, *((index, data) for index in range(6))), version)
        received = asyncio.create_task(client.receive())
        is_sliced = False
        while not received.done():
            is_sliced = is_sliced or bool(world.broker._tasks)
            await asyncio.sleep(0)
        assert is_sliced
        results = received.result().responses[0].partition_responses
        assert [(one.index, one.error_code, one.base_offset) for one in results] == [
            (index, 0, 0) for index in range(6)
        ]

    tell(story)


def test_a_large_produce_writes_few_logs_in_one_step(tell, monkeypatch) -> None:
    """Each log is a file that is written: other connections are served in between."""
    written: list[int] = []
    finish = Turn.finish

    def counted(turn: Turn, loan=None) -> None:
        written.append(len(turn.touched))
        finish(turn, loan)

    async def story(world) -> None:
        count = 3 * PRODUCED_PER_SLICE
        await world.create("events", count)
        client = await world.connect()
        monkeypatch.setattr(Turn, "finish", counted)
        response = await client.ask(produce_to("events", *((i, batch(b"x")) for i in range(count))), 9)
        monkeypatch.undo()
        results = response.responses[0].partition_responses
        assert [(one.index, one.error_code) for one in results] == [(index, 0) for index in range(count)]
        assert sum(written) == count
        assert max(written) <= PRODUCED_PER_SLICE

    tell(story)


def test_a_slice_of_a_produce_request_does_not_wait_for_the_commit_of_another(tell) -> None:
    """Many partitions take one round trip to the followers, not one for each slice."""

    async def story(world) -> None:
        count = 3 * PRODUCED_PER_SLICE
        await world.create("events", count)
        client = await world.connect()
        partitions = [world.broker.partition("events", index) for index in range(count)]
        first = partitions[0].log
        first.write_staged = lambda: None  # its disk is slow
        client.send(produce_to("events", *((index, batch(b"x")) for index in range(count))), 9)
        received = asyncio.create_task(client.receive())
        for _ in range(1000):
            if all(partition.log.end_offset == 1 for partition in partitions):
                break
            await asyncio.sleep(0.01)
        assert all(partition.log.end_offset == 1 for partition in partitions)
        assert not received.done()
        received.cancel()

    tell(story)


def test_memory_is_lent_until_a_request_is_handled(tell) -> None:
    """Not until it is answered: that may take as long as its client says, and others need the memory."""

    async def story(world) -> None:
        released: list[None] = []
        handled: Promise[None] = Promise()
        answered: Promise[str] = Promise()
        loan = Loan(lambda: released.append(None))
        ctx = context.Context(world.broker, Session("host", 0, "PLAINTEXT", 1), 9, None, loan=loan)

        async def handle() -> MaybePromise[str]:
            await settled(handled)
            return answered

        serving = asyncio.create_task(while_lent(handle(), ctx))
        loan.done()
        await asyncio.sleep(0)
        assert not released
        handled.resolve(None)
        for _ in range(10):
            await asyncio.sleep(0)
        assert released == [None]
        assert not serving.done()
        answered.resolve("done")
        assert await serving == "done"
        assert released == [None]

    tell(story)


def test_records_of_many_bytes_are_served_in_slices() -> None:
    records = bytes(SLICE_RECORDS_BYTES // 4)
    request = produce_to("events", *((index, records) for index in range(9)))
    parts = [part for part, _ in cut(request, ("topic_data", "partition_data"), PRODUCED_PER_SLICE)]
    sizes = []
    for part in parts:
        assert isinstance(part, ProduceRequest)
        sizes.append(sum(len(data.records or b"") for data in part.topic_data[0].partition_data))
    assert sum(sizes) == 9 * len(records)
    assert max(sizes) <= SLICE_RECORDS_BYTES


def test_metadata_of_a_large_request_has_each_topic_once(tell) -> None:
    async def story(world) -> None:
        await world.create("events")
        client = await world.connect()
        topics = [MetadataRequestTopic(name="events") for _ in range(3 * SLICE_ELEMENTS)]
        response = await client.ask(MetadataRequest(topics), 12)
        assert [topic.name for topic in response.topics] == ["events"]

    tell(story)


def fetch_many(count: int, **fields: int) -> FetchRequest:
    partitions = [FetchPartition(partition=index, partition_max_bytes=1000) for index in range(count)]
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[FetchTopic("events", partitions=partitions)])
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def test_a_fetch_from_very_many_partitions_has_no_session(tell) -> None:
    async def story(world) -> None:
        count = FETCH_PARTITIONS_MAX + 1
        await world.create("events", 2)
        client = await world.connect()
        await client.ask(produce_to("events", (1, batch(b"x"))), 9)
        response = await client.ask(fetch_many(count, session_epoch=0), 12)
        assert (response.error_code, response.session_id) == (0, 0)
        (topic,) = response.responses
        assert [data.partition_index for data in topic.partitions] == list(range(count))
        assert [bool(data.records) for data in topic.partitions[:3]] == [False, True, False]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
        assert [data.error_code for data in topic.partitions[:3]] == [0, 0, unknown]

    tell(story)


def test_a_fetch_session_does_not_grow_without_bound(tell) -> None:
    async def story(world) -> None:
        await world.create("events")
        client = await world.connect()
        begun = await client.ask(fetch_many(FETCH_PARTITIONS_MAX, session_epoch=0), 12)
        assert begun.session_id
        more = fetch_many(1, session_id=begun.session_id, session_epoch=1)
        more.topics[0].partitions[0].partition = FETCH_PARTITIONS_MAX
        refused = await client.ask(more, 12)
        assert refused.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND.code
        assert len(world.broker.fetch_sessions) == 0
        many = fetch_many(FETCH_PARTITIONS_MAX + 1, session_id=7, session_epoch=1)
        assert (await client.ask(many, 12)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND.code

    tell(story)


@pytest.mark.parametrize(
    "protocols",
    [
        [JoinGroupRequestProtocol(f"p{number}", b"") for number in range(SLICE_ELEMENTS + 1)],
        [JoinGroupRequestProtocol("range", bytes(MEMBER_METADATA_BYTES_MAX + 1))],
    ],
    ids=["protocols", "metadata"],
)
def test_subscriptions_of_a_member_are_bounded(tell, protocols: list[JoinGroupRequestProtocol]) -> None:
    async def story(world) -> None:
        client = await world.connect()
        request = JoinGroupRequest(
            group_id="group", session_timeout_ms=10_000, protocol_type="consumer", protocols=protocols
        )
        assert (await client.ask(request, 5)).error_code == ErrorCode.INVALID_REQUEST.code

    tell(story)


def test_a_request_without_records_is_not_as_large_as_one_with_them(tell) -> None:
    async def story(world) -> None:
        client = await world.connect()
        topics = [MetadataRequestTopic(name=f"{number}".ljust(20_000, "x")) for number in range(1000)]
        client.send(MetadataRequest(topics), 12)
        assert await client.is_closed()

    tell(story)


def test_names_of_great_length_weigh_more() -> None:
    topics = [MetadataRequestTopic(name="x" * 30_000) for _ in range(10)]
    assert weight(MetadataRequest(topics), ("topics",)) < 100
    assert weight("x" * 30_000, ()) > 100


async def committed(world, *groups: str, partitions: int = 5):
    """A client, and groups that have committed an offset of each partition."""
    await world.create("events", partitions)
    client = await world.connect()
    parts = [OffsetCommitRequestPartition(index, 7) for index in range(partitions)]
    for group in groups:
        topics = [OffsetCommitRequestTopic("events", partitions=parts)]
        request = OffsetCommitRequest(group_id=group, topics=topics)
        await client.ask(FindCoordinatorRequest(group), 0)
        await client.ask(request, 8)
    return client


def test_offsets_of_many_groups_are_bounded(tell, monkeypatch) -> None:
    """A few bytes ask for all offsets of a group; asked again, the groups that had no room are answered."""
    monkeypatch.setattr(context, "RESPONSE_ELEMENTS_MAX", 5, raising=False)

    async def story(world) -> None:
        client = await committed(world, "a", "b", "c")
        asked = ["a", "b", "b", "c"]
        sizes = []
        while asked:
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(name, topics=None) for name in asked]
            )
            groups = (await client.ask(request, 8)).groups
            assert [group.group_id for group in groups] == list(dict.fromkeys(asked))
            sizes.append([sum(len(topic.partitions) for topic in group.topics) for group in groups])
            asked = [group.group_id for group in groups if group.error_code]
            assert {group.error_code for group in groups} <= {0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code}
        assert sizes == [[5, 0, 0], [5, 0], [5]]

    tell(story)


@pytest.mark.parametrize(
    ("api_key", "array", "into"), [(15, "groups", "groups"), (69, "group_ids", "groups")]
)
def test_descriptions_of_groups_are_bounded(tell, monkeypatch, api_key, array, into) -> None:
    monkeypatch.setattr(context, "RESPONSE_ELEMENTS_MAX", 2, raising=False)

    async def story(world) -> None:
        client = await committed(world, "a")
        request, version = api(api_key).request(), APIS[api_key].version_max
        setattr(request, array, ["a"] * 40 + ["b", "c", "d", "e"])
        groups = getattr(await client.ask(request, version), into)
        assert [group.group_id for group in groups] == ["a", "b", "c", "d", "e"]
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code
        assert [group.error_code == loading for group in groups] == [False, False, False, True, True]

    tell(story)
