"""A large request has the codes of a small one, and its response does not grow without bound."""

import threading
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel import wire
from runnel.broker.apis.handlers import elements_max
from runnel.broker.runtime import call, pipeline
from runnel.broker.runtime.slices import cut, weighs_more, weight
from runnel.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from runnel.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from runnel.messages.broker_registration import BrokerRegistrationRequest
from runnel.messages.controller_registration import ControllerRegistrationRequest
from runnel.messages.create_topics import CreatableTopic, CreateTopicsRequest
from runnel.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from runnel.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from runnel.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.incremental_alter_configs import (
    AlterConfigsResource as IncrementalResource,
)
from runnel.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
)
from runnel.messages.list_groups import ListGroupsRequest
from runnel.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from runnel.messages.metadata import MetadataRequest, MetadataRequestTopic
from runnel.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from runnel.messages.vote import VoteRequest
from runnel.model.configs import ResourceType
from runnel.model.errors import ErrorCode
from runnel.model.limits import (
    INLINE_ELEMENTS_MAX,
    REGISTERED_DIRECTORIES_MAX,
    REGISTERED_LISTENERS_MAX,
    REQUEST_ELEMENTS_MAX,
    SLICE_ELEMENTS,
    UNSLICED_ELEMENTS_MAX,
)
from runnel.wire import Request, Response
from tests.broker import group_calls, txn_calls
from tests.broker.group_calls import commit_request
from tests.broker.requests import batch, fetch_from, only, produce_to, values
from tests.broker.test_slices import REQUEST_ARRAYS, offset_fetch

NONE = ErrorCode.NONE.code
OTHERS = [f"other-{number}" for number in range(2 * SLICE_ELEMENTS)]


def delete_topics(names: Iterable[str]) -> Request:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name) for name in names])


def delete_topic_names(names: Iterable[str]) -> Request:
    return DeleteTopicsRequest(topic_names=list(names))


def alter_configs(names: Iterable[str]) -> Request:
    configs = [AlterableConfig("retention.ms", "1000")]
    return AlterConfigsRequest([AlterConfigsResource(ResourceType.TOPIC, name, configs) for name in names])


def incremental_alter_configs(names: Iterable[str]) -> Request:
    return IncrementalAlterConfigsRequest([IncrementalResource(ResourceType.TOPIC, name) for name in names])


def describe_users(names: Iterable[str]) -> Request:
    return DescribeUserScramCredentialsRequest([UserName(name) for name in names])


def list_offsets(names: Iterable[str]) -> Request:
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name, [ListOffsetsPartition(0)]) for name in names])


def codes_of(response: Any, name: str) -> set[int]:
    """The codes that a response has for a topic or user."""
    if isinstance(response, Response) and hasattr(response, "topics"):
        found = [part for topic in response.topics if topic.name == name for part in topic.partitions]
    else:
        results = response.responses if hasattr(response, "responses") else response.results
        found = [result for result in results if name in (getattr(result, key, "") for key in NAMES)]
    return {result.error_code for result in found}


NAMES = ("name", "resource_name", "user")


@pytest.mark.parametrize(
    ("build", "version"),
    [
        (delete_topics, 6),
        (delete_topic_names, 5),
        (alter_configs, 2),
        (incremental_alter_configs, 1),
        (describe_users, 0),
        (list_offsets, 7),
    ],
)
def test_what_is_named_twice_is_refused_in_a_large_request_as_well(tell, build, version: int) -> None:
    async def story(world: Any) -> None:
        await world.create("events")
        client = await world.connect()
        small = codes_of(await client.ask(build(["events", "events"]), version), "events")
        assert len(small) == 1 and NONE not in small
        for many in (["events", *OTHERS, "events"], ["events"] * len(OTHERS)):
            assert codes_of(await client.ask(build(many), version), "events") == small
        assert "events" in world.broker.metadata.image.topics

    tell(story)


@pytest.mark.parametrize("others", [[], OTHERS])
def test_a_topic_that_is_named_twice_is_not_created(tell, others: list[str]) -> None:
    async def story(world: Any) -> None:
        client = await world.connect()
        topics = [CreatableTopic(name, 1, 1) for name in ("events", *others, "events")]
        results = (await client.ask(CreateTopicsRequest(topics), 7)).topics
        refused = {result.name for result in results if result.error_code == ErrorCode.INVALID_REQUEST.code}
        assert refused == {"events"}
        assert [result.name for result in results if result.error_code == NONE] == others
        assert set(world.broker.metadata.image.topics) == set(others)

    tell(story)


@pytest.mark.parametrize("version", [3, 5])
def test_a_transaction_gets_all_partitions_of_a_large_request_or_none(tmp_path, version: int) -> None:
    async def scenario(world: Any, client: Any) -> None:
        who = await txn_calls.begin(client)
        await world.create("wide", 2 * SLICE_ELEMENTS)
        every = AddPartitionsToTxnTopic("wide", list(range(2 * SLICE_ELEMENTS)))
        missing = AddPartitionsToTxnTopic("missing", [0])
        refused = txn_calls.added(
            await client.ask(txn_calls.add_request("x", who, version, every, missing), version), version
        )
        assert refused.pop(("missing", 0)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
        assert set(refused.values()) == {ErrorCode.OPERATION_NOT_ATTEMPTED.code}
        assert len(refused) == len(every.partitions)
        assert (await txn_calls.describe(client, "x")).topics == []
        accepted = await client.ask(txn_calls.add_request("x", who, version, every), version)
        assert set(txn_calls.added(accepted, version).values()) == {NONE}
        (topic,) = (await txn_calls.describe(client, "x")).topics
        assert sorted(topic.partitions) == every.partitions

    txn_calls.play(tmp_path, scenario)


def test_a_commit_is_returned_once_however_often_it_is_asked_for(tmp_path) -> None:
    async def scenario(_: Any, client: Any) -> None:
        await client.ask(commit_request({0: 5}, metadata="long" * 100), 8)
        count = 2 * SLICE_ELEMENTS
        for topics in (
            [OffsetFetchRequestTopics("t", partition_indexes=[0] * count)],
            [OffsetFetchRequestTopics("t", partition_indexes=[0]) for _ in range(count)],
        ):
            groups = [OffsetFetchRequestGroup("g", topics=topics)]
            (group,) = (await client.ask(OffsetFetchRequest(groups=groups), 9)).groups
            (topic,) = group.topics
            assert [part.committed_offset for part in topic.partitions] == [5]

    group_calls.play(tmp_path, scenario)


def test_configs_of_a_resource_that_is_repeated_are_described_once(tell) -> None:
    async def story(world: Any) -> None:
        await world.create("events")
        client = await world.connect()
        keys = ("retention.ms", "cleanup.policy")
        resources = [
            DescribeConfigsResource(ResourceType.TOPIC, "events", [keys[number % 2]])
            for number in range(2 * SLICE_ELEMENTS)
        ]
        (result,) = (await client.ask(DescribeConfigsRequest(resources), 4)).results
        assert {config.name for config in result.configs} == set(keys)

    tell(story)


@given(st.lists(st.lists(st.integers(0, 8), max_size=5), max_size=5), st.integers(1, 60))
def test_a_weight_is_compared_without_adding_up_all_of_it(groups: list[list[int]], limit: int) -> None:
    request = offset_fetch(groups)
    assert weighs_more(request, REQUEST_ARRAYS, limit) == (weight(request, REQUEST_ARRAYS) > limit)


def test_equal_numbers_are_cut_into_slices_as_well() -> None:
    topics = [OffsetFetchRequestTopics("t", partition_indexes=[0] * 1000)]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)])
    parts = [part for part, _ in cut(request, REQUEST_ARRAYS, 100)]
    assert max(weight(part, REQUEST_ARRAYS) for part in parts) <= 104


def test_large_responses_are_encoded_in_a_thread(tell, monkeypatch) -> None:
    threads: dict[int, set[int]] = {}

    def encode(response: Any, version: int) -> list[Any]:
        threads.setdefault(response.api_key, set()).add(threading.get_ident())
        return wire.encode(response, version)

    monkeypatch.setattr(call, "encode", encode)

    async def story(world: Any) -> None:
        client = await world.connect()
        await client.ask(describe_users(["one"]), 0)
        await client.ask(list_offsets(OTHERS), 7)

    tell(story)
    assert threads[DescribeUserScramCredentialsRequest.api_key] == {threading.get_ident()}
    assert threading.get_ident() not in threads[ListOffsetsRequest.api_key]


def test_large_requests_are_decoded_in_a_thread_and_answered_in_order(tell, monkeypatch) -> None:
    threads: dict[type[Request], set[int]] = {}

    def decode(message: type[Request], *rest: Any) -> Request:
        threads.setdefault(message, set()).add(threading.get_ident())
        return wire.decode_request(message, *rest)

    monkeypatch.setattr(pipeline, "decode_request", decode)

    async def story(world: Any) -> None:
        client = await world.connect()
        names = [f"topic-{number}" for number in range(60_000)]
        topics = [MetadataRequestTopic(name=name) for name in names]
        client.send(MetadataRequest(topics, allow_auto_topic_creation=False), 12)
        client.send(describe_users(["one"]), 0)
        assert [topic.name for topic in (await client.receive()).topics] == names
        assert (await client.receive()).results[0].user == "one"

    tell(story)
    assert threading.get_ident() not in threads[MetadataRequest]
    assert threads[DescribeUserScramCredentialsRequest] == {threading.get_ident()}


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (FindCoordinatorRequest(coordinator_keys=["g"] * (INLINE_ELEMENTS_MAX + 1)), 4),
        (produce_to("events", *((index, batch(b"x")) for index in range(INLINE_ELEMENTS_MAX))), 9),
    ],
    ids=["few bytes", "records"],
)
def test_requests_with_many_elements_are_decoded_in_a_thread(tell, monkeypatch, request_, version) -> None:
    """However few bytes they have, and with records, which are not copied."""
    inline: list[int] = []

    def decode(message: type[Request], version: int, view: memoryview, position: int, limit: int) -> Request:
        if threading.current_thread() is threading.main_thread():
            inline.append(limit)
        return wire.decode_request(message, version, view, position, limit)

    async def story(world: Any) -> None:
        await world.create("events")
        client = await world.connect()
        monkeypatch.setattr(pipeline, "decode_request", decode)
        response = await client.ask(request_, version)
        monkeypatch.undo()
        if isinstance(request_, FindCoordinatorRequest):
            assert len(response.coordinators) == INLINE_ELEMENTS_MAX + 1
        else:
            results = response.responses[0].partition_responses
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
            assert [one.error_code for one in results] == [NONE] + [unknown] * (INLINE_ELEMENTS_MAX - 1)
            assert values(only(await client.ask(fetch_from("events", (0, 0)), 12)).records) == [b"x"]

    tell(story)
    assert inline == [INLINE_ELEMENTS_MAX]


def test_a_node_can_register_with_all_that_it_may_have() -> None:
    registered = REGISTERED_LISTENERS_MAX + 2 * REGISTERED_DIRECTORIES_MAX
    for request in (BrokerRegistrationRequest, ControllerRegistrationRequest, VoteRequest):
        assert registered < elements_max(request.api_key) < UNSLICED_ELEMENTS_MAX


@pytest.mark.parametrize(
    ("build", "version", "elements_max"),
    [
        (lambda count: FindCoordinatorRequest(coordinator_keys=["g"] * count), 4, REQUEST_ELEMENTS_MAX),
        (lambda count: ListGroupsRequest(["Empty"] * count), 4, UNSLICED_ELEMENTS_MAX),
    ],
)
def test_requests_with_too_many_elements_close_their_connection(tell, build, version, elements_max) -> None:
    async def story(world: Any) -> None:
        client = await world.connect()
        await client.ask(build(elements_max), version)
        client.send(build(elements_max + 1), version)
        assert await client.is_closed()

    tell(story)
