"""No request avoids authentication, authorization, quotas and accounting, in any API and version."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from runnel.broker.apis.access import ACCESS
from runnel.broker.apis.handlers import APIS
from runnel.broker.runtime.gates import Gates
from runnel.broker.runtime.promise import Promise
from runnel.messages.fetch import ReplicaState
from runnel.messages.metadata import MetadataRequest, MetadataRequestTopic
from runnel.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from runnel.messages.registry import api
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.limits import SLICE_ELEMENTS
from runnel.ports.gates import Permission, ResourceType
from runnel.ports.service import CloseConnection, Reply, Session
from runnel.wire import Struct, fields_of
from tests.broker.gated import Gated, Recorder
from tests.broker.requests import batch, fetch_from, produce_to
from tests.wire.samples import example

TOPIC, GROUP, CLUSTER, TXN = 29, 30, 31, 53
OPEN = {17, 18, 36, 38, 39, 40, 41, 60}
"""APIs that need no permission, or whose handlers decide (delegation tokens)."""
FILTERED = {3, 16, 66}
"""APIs that show every client something; what is denied is left out or marked."""

# What a client that may do nothing receives: the codes at the top level of the response and in its elements.
DENIED_AT_TOP = {
    **dict.fromkeys((11, 12, 13, 14, 47, 68), GROUP),
    **dict.fromkeys((29, 46, 48, 50, 55, 57, 64, 74, 43, 45, 35), CLUSTER),
    **dict.fromkeys((52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 80, 81, 82), CLUSTER),
    **dict.fromkeys((22, 25, 26), TXN),
}
DENIED_IN_ITEMS = {
    **dict.fromkeys((1, 2, 3, 19, 20, 21, 23, 37, 61, 75), TOPIC),
    **dict.fromkeys((8, 9, 15, 42, 69), GROUP),
    **dict.fromkeys((27, 30, 31, 32, 33, 44, 43, 45, 49, 50, 51), CLUSTER),
    **dict.fromkeys((0, 28, 65), TXN),
}

TRANSACTIONAL_BATCH = bytes(22) + b"\x10" + bytes(40)

EVERY = [
    (key, version) for key, row in APIS.items() for version in range(row.version_min, row.version_max + 1)
]


@pytest.fixture
def gated(tell, monkeypatch):
    """Run a scenario with a pipeline behind recording gates."""

    def run(scenario, **options) -> Recorder:
        recorder = Recorder(**options)

        async def wrapped(world) -> None:
            await world.create("events", 3)
            result = scenario(Gated(world, monkeypatch, recorder), world)
            if result is not None:
                await result
            world.broker.gates = Gates()

        tell(wrapped)
        return recorder

    return run


def full(api_key: int, version: int) -> Any:
    """A request with something in every array that the version has."""
    request = example(api(api_key).request, version, "full")
    if api_key == 1:
        request.session_id, request.session_epoch = 0, -1
    if api_key == 0:
        request.acks = 1
        for topic in request.topic_data:
            for data in topic.partition_data:
                data.records = TRANSACTIONAL_BATCH
    if api_key == 10:
        request.key_type = 0
    return request


def codes(struct: Any) -> Iterator[int]:
    """All error codes in the elements of a response."""
    for field in fields_of(type(struct)):
        value = getattr(struct, field.name)
        if field.name in ("error_code", "partition_error_code"):
            yield value
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Struct):
                    yield from codes(item)


def test_every_api_has_a_row():
    assert ACCESS.keys() == APIS.keys()
    covered = DENIED_AT_TOP.keys() | DENIED_IN_ITEMS.keys() | OPEN | FILTERED | {10, 24}
    assert covered == APIS.keys()


def test_every_request_meets_every_gate_in_order(gated):
    def scenario(gates: Gated, world: Any) -> None:
        for api_key, version in EVERY:
            gates.replace(api_key)
            gates.session.template = None
            gates.recorder.met.clear()
            gates.serve((full(api_key, version), version))
            expected = ["authenticate", "authorize", "throttle", "handle", "account"]
            assert gates.recorder.met == expected, (api_key, version)
            assert gates.session.throttle_ms == 70
            gates.session.throttle_ms = 0

    recorder = gated(scenario, throttle_ms=70)
    assert [account[:3] for account in recorder.accounts] == [(*each, 1) for each in EVERY]


def test_a_response_states_for_how_long_its_client_is_throttled(gated):
    def scenario(gates: Gated, world: Any) -> None:
        for api_key, version in EVERY:
            gates.replace(api_key)
            request = full(api_key, version)
            response = gates.ask(request, version)
            fields = fields_of(type(response))
            has_field = any(
                field.name == "throttle_time_ms" and field.versions.covers(version) for field in fields
            )
            assert getattr(response, "throttle_time_ms", 0) == (70 if has_field else 0), (api_key, version)

    gated(scenario, throttle_ms=70)


def test_what_is_denied_is_answered_without_its_handler(gated):
    def scenario(gates: Gated, world: Any) -> None:
        for api_key, version in EVERY:
            if api_key in OPEN | FILTERED:
                continue
            gates.replace(api_key)
            request = full(api_key, version)
            response = gates.ask(request, version)
            where = (api_key, version, response)
            assert not gates.handled, where
            present = {field.name for field in fields_of(type(response)) if field.versions.covers(version)}
            top = getattr(response, "error_code", 0) if "error_code" in present else 0
            items = set(codes(response)) - {0, top}
            if api_key == 10:
                assert (top if version < 4 else items.pop()) == GROUP, where
            elif api_key == 24:
                assert (items.pop() if version < 4 else top) == (TXN if version < 4 else CLUSTER), where
            elif api_key == 9 and 2 <= version < 8:
                assert top == GROUP, where
            elif api_key in DENIED_AT_TOP:
                assert "error_code" not in present or top == DENIED_AT_TOP[api_key], where
            else:
                assert not top and items == {DENIED_IN_ITEMS[api_key]}, where

    recorder = gated(scenario, denies=True)
    assert all(count == 1 for _, _, count, _, _ in recorder.accounts)


@pytest.mark.parametrize("api_key", sorted(OPEN))
def test_apis_without_permissions_are_open(gated, api_key):
    def scenario(gates: Gated, world: Any) -> None:
        for version in range(APIS[api_key].version_min, APIS[api_key].version_max + 1):
            gates.replace(api_key)
            gates.ask(full(api_key, version), version)
            assert gates.handled.pop()

    gated(scenario, denies=True)


@pytest.mark.parametrize("version", range(14))
def test_metadata_shows_brokers_and_hides_topics(gated, version):
    def scenario(gates: Gated, world: Any) -> None:
        everything = MetadataRequest(topics=[] if version == 0 else None)
        response = gates.ask(everything, version)
        assert response.brokers and not response.topics
        asked = [MetadataRequestTopic(name="events"), MetadataRequestTopic(name="other")]
        if version >= 12:
            asked.append(MetadataRequestTopic(world.topic_id("events"), None))
        response = gates.ask(MetadataRequest(asked, False), version)
        assert response.brokers
        assert [(topic.error_code, topic.name, topic.partitions) for topic in response.topics] == [
            (TOPIC, topic.name, []) for topic in asked
        ]

    gated(scenario, denies=True)


def test_some_topics_are_denied_and_the_others_served(gated):
    class OnlyEvents(Recorder):
        def allows(self, session: Session, permission: Permission) -> bool:
            return permission.name == "events"

    def scenario(gates: Gated, world: Any) -> None:
        gates.recorder.__class__ = OnlyEvents
        request = produce_to("events", (0, batch(b"a")))
        request.topic_data += produce_to("secret", (0, batch(b"b")), (1, batch(b"c"))).topic_data
        response = gates.ask(request, 9)
        assert [
            (topic.name, [part.error_code for part in topic.partition_responses])
            for topic in response.responses
        ] == [("events", [0]), ("secret", [TOPIC, TOPIC])]
        assert gates.session.template is None
        fetch = fetch_from("events", (0, 0))
        fetch.topics += fetch_from("secret", (0, 0)).topics
        response = gates.ask(fetch, 12)
        assert [(topic.topic, topic.partitions[0].error_code) for topic in response.responses] == [
            ("events", 0),
            ("secret", TOPIC),
        ]

    gated(scenario, denies=True)


def test_produce_without_acknowledgement_to_a_denied_topic_closes(gated):
    def scenario(gates: Gated, world: Any) -> None:
        with pytest.raises(CloseConnection):
            gates.serve((produce_to("events", (0, batch(b"a")), acks=0), 9))
        with pytest.raises(CloseConnection):
            gates.serve((produce_to("events", (0, batch(b"a")), acks=0, transactional_id="id"), 9))
        assert world.broker.partition("events", 0).log.end_offset == 0

    recorder = gated(scenario, denies=True)
    assert len(recorder.accounts) == 2


@pytest.mark.parametrize("version", [9, 13])
def test_repeated_produce_requests_lose_their_permission(gated, version):
    def scenario(gates: Gated, world: Any) -> None:
        topic = world.topic_id("events") if version >= 13 else "events"
        request = produce_to(topic, (0, batch(b"a")))
        gates.serve((request, version))
        met = len(gates.recorder.met)
        replies = gates.serve(*[(request, version)] * 5)
        assert [reply.count for reply in replies] == [5], "they were not served by the template"
        assert gates.recorder.met[met:] == ["authenticate", "account"]
        assert gates.recorder.accounts[-1][:3] == (0, version, 5)
        gates.recorder.denies = True
        gates.recorder.version += 1
        (reply,) = gates.serve((request, version))
        response = gates.decoded(request, version, reply)
        assert response.responses[0].partition_responses[0].error_code == TOPIC
        assert world.broker.partition("events", 0).log.end_offset == 6

    recorder = gated(scenario)
    assert sum(count for _, _, count, _, _ in recorder.accounts) == 7


@pytest.mark.parametrize("version", [12, 13])
def test_repeated_fetch_requests_lose_their_permission(gated, version):
    def scenario(gates: Gated, world: Any) -> None:
        topic = world.topic_id("events") if version >= 13 else "events"
        gates.serve((produce_to("events", (0, batch(b"a"))), 9))
        request = fetch_from(topic, (0, 0))
        gates.serve((request, version))
        met = len(gates.recorder.met)
        replies = gates.serve(*[(request, version)] * 5)
        assert [reply.count for reply in replies] == [5]
        assert gates.recorder.met[met:] == ["authenticate", "account"]
        gates.recorder.denies = True
        gates.recorder.version += 1
        (reply,) = gates.serve((request, version))
        response = gates.decoded(request, version, reply)
        (part,) = response.responses[0].partitions
        assert part.error_code == TOPIC and not part.records

    recorder = gated(scenario)
    assert sum(count for _, _, count, _, _ in recorder.accounts) == 8


@pytest.mark.parametrize("error", [CloseConnection("expired"), ApiError(ErrorCode.ILLEGAL_SASL_STATE, "no")])
@pytest.mark.parametrize("is_fetch", [False, True])
def test_repeated_requests_are_authenticated(gated, is_fetch, error):
    """A session expires, or authenticates again, without a change of what its principal may do."""

    class Expiring(Recorder):
        def check(self, session: Session, api_key: int) -> None:
            raise error

    def scenario(gates: Gated, world: Any) -> None:
        produce, fetch = (produce_to("events", (0, batch(b"a"))), 9), (fetch_from("events", (0, 0)), 12)
        gates.serve(produce, fetch if is_fetch else produce)
        gates.recorder.__class__ = Expiring
        if isinstance(error, CloseConnection):
            with pytest.raises(CloseConnection):
                gates.serve(fetch if is_fetch else produce)
        else:
            (reply,) = gates.serve(fetch if is_fetch else produce)
            assert not any(b"a" in bytes(part) for part in reply.parts)  # type: ignore[arg-type]
        assert world.broker.partition("events", 0).log.end_offset == 2 - is_fetch

    recorder = gated(scenario)
    assert sum(count for _, _, count, _, _ in recorder.accounts) == 3


def test_api_versions_of_an_unknown_version_is_authenticated_and_throttled(gated):
    def scenario(gates: Gated, world: Any) -> None:
        frame = b"\x00\x12\x7f\xff" + bytes(4) + b"\x00\x02me"
        replies: list[Reply] = []
        gates.pipeline.serve(memoryview(frame), 0, len(frame), len(frame), gates.session, replies, 1)
        assert len(replies) == 1 and gates.session.throttle_ms == 30
        gates.session.throttle_ms = 0

    recorder = gated(scenario, throttle_ms=30)
    assert recorder.met == ["authenticate", "throttle", "account"]


@pytest.mark.parametrize("version", [12, 13, 15, 18])
def test_a_follower_needs_a_permission_on_the_cluster(gated, version):
    class Only(Recorder):
        allowed = ResourceType.TOPIC

        def allows(self, session: Session, permission: Permission) -> bool:
            return permission.resource_type is self.allowed

    def scenario(gates: Gated, world: Any) -> None:
        gates.recorder.__class__ = Only
        gates.serve((produce_to("events", (0, batch(b"a"))), 9))
        topic = world.topic_id("events") if version >= 13 else "events"
        for replica_id, allowed in ((1, ResourceType.TOPIC), (-1, ResourceType.CLUSTER)):
            Only.allowed = allowed
            request = fetch_from(topic, (0, 0))
            request.replica_id = replica_id
            request.replica_state = ReplicaState(replica_id)
            response = gates.ask(request, version)
            assert [part.error_code for part in response.responses[0].partitions] == [TOPIC]
            request.replica_id = -1 - replica_id
            request.replica_state = ReplicaState(-1 - replica_id)
            Only.allowed = ResourceType.TOPIC if replica_id >= 0 else ResourceType.CLUSTER
            response = gates.ask(request, version)
            # Node 0 is permitted, but is not a replica of the partition.
            expected = 0 if replica_id >= 0 else ErrorCode.UNKNOWN_LEADER_EPOCH.code
            assert [part.error_code for part in response.responses[0].partitions] == [expected]

    gated(scenario, denies=True)


def test_offsets_of_an_unknown_topic_id_are_answered(gated):
    class OnlyEvents(Recorder):
        def allows(self, session: Session, permission: Permission) -> bool:
            return permission.name in ("events", "group")

    def scenario(gates: Gated, world: Any) -> None:
        gates.recorder.__class__ = OnlyEvents
        topics = [OffsetFetchRequestTopics(topic_id=bytes(15) + b"x", partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("group", topics=topics)])
        partitions = [OffsetFetchResponsePartitions(0, -1, error_code=ErrorCode.UNKNOWN_TOPIC_ID.code)]
        found = OffsetFetchResponseTopics(topic_id=topics[0].topic_id, partitions=partitions)
        answer = OffsetFetchResponse(groups=[OffsetFetchResponseGroup("group", [found])])
        gates.replace(9, lambda: answer)
        (group,) = gates.ask(request, 10).groups
        assert [topic.topic_id for topic in group.topics] == [topics[0].topic_id]

    gated(scenario, denies=True)


def test_a_fetch_session_does_not_keep_a_permission(gated):
    def scenario(gates: Gated, world: Any) -> None:
        gates.serve((produce_to("events", (0, batch(b"a"))), 9))
        first = fetch_from("events", (0, 0))
        first.session_epoch = 0
        session_id = gates.ask(first, 12).session_id
        assert session_id
        gates.recorder.denies = True
        gates.recorder.version += 1
        # An incremental request names nothing that it named before.
        again = fetch_from("events")
        again.topics, again.session_id, again.session_epoch = [], session_id, 1
        response = gates.ask(again, 12)
        assert [part.error_code for part in response.responses[0].partitions] == [TOPIC]

    gated(scenario)


def test_a_connection_with_a_quota_is_charged_for_repeated_requests(gated):
    def scenario(gates: Gated, world: Any) -> None:
        request = produce_to("events", (0, batch(b"a")))
        for _ in range(3):
            assert gates.ask(request, 9).throttle_time_ms == 30
        fetch = fetch_from("events", (0, 0))
        for _ in range(3):
            assert gates.ask(fetch, 12).throttle_time_ms == 30
        assert gates.recorder.met.count("throttle") == 6

    gated(scenario, throttle_ms=30)


def _raise(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize(
    "handle",
    [
        lambda: _raise(ApiError(ErrorCode.POLICY_VIOLATION, "no")),
        lambda: _raise(ZeroDivisionError()),
        lambda: _raise(CloseConnection("no")),
        lambda: None,
    ],
    ids=["refused", "bug", "closed", "no response"],
)
@pytest.mark.parametrize("api_key", [0, 2, 36])
def test_failed_requests_are_accounted_once(gated, handle, api_key):
    def scenario(gates: Gated, world: Any) -> None:
        gates.replace(api_key, handle)
        version = APIS[api_key].version_max
        with contextlib.suppress(CloseConnection):
            gates.serve((full(api_key, version), version))

    recorder = gated(scenario)
    assert len(recorder.accounts) == 1


@pytest.mark.parametrize("frame", [b"\x00", b"\x00\x12\x00\x03", b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x09"])
def test_malformed_requests_are_accounted_once(gated, frame):
    def scenario(gates: Gated, world: Any) -> None:
        with pytest.raises(CloseConnection):
            gates.pipeline.serve(memoryview(frame), 0, len(frame), len(frame), gates.session, [], 1)

    recorder = gated(scenario)
    assert [account[2:] for account in recorder.accounts] == [(1, len(frame), 0)]


@pytest.mark.parametrize("is_closed", [False, True], ids=["answered", "disconnected"])
@pytest.mark.parametrize("fails", [False, True])
def test_promised_responses_are_accounted_once(gated, is_closed, fails):
    def scenario(gates: Gated, world: Any) -> None:
        promise: Promise[Any] = Promise()
        gates.replace(12, lambda: promise)
        gates.serve((full(12, 4), 4))
        assert not gates.recorder.accounts
        if is_closed:
            gates.pipeline.closed(gates.session)
            assert len(gates.recorder.accounts) == 1
        if fails:
            promise.fail(ZeroDivisionError())
        else:
            promise.resolve(api(12).response())

    recorder = gated(scenario)
    assert len(recorder.accounts) == 1
    assert bool(recorder.accounts[0][4]) is not is_closed


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_large_produce_without_acknowledgement_is_accounted_once(gated, is_closed):
    async def scenario(gates: Gated, world: Any) -> None:
        batches = [(0, batch(b"a")) for _ in range(2 * SLICE_ELEMENTS)]
        (reply,) = gates.serve((produce_to("events", *batches, acks=0), 9))
        assert reply.mutes_connection and not gates.recorder.accounts
        if is_closed:
            gates.pipeline.closed(gates.session)
        while not reply.is_filled:
            await asyncio.sleep(0)
        assert reply.is_silent and not reply.parts
        assert world.broker.partition("events", 0).log.end_offset == len(batches)

    recorder = gated(scenario)
    assert [(*account[:3], account[4]) for account in recorder.accounts] == [(0, 9, 1, 0)]


@pytest.mark.parametrize("is_repeated", [False, True])
def test_long_polls_are_accounted_once(gated, is_repeated):
    async def scenario(gates: Gated, world: Any) -> None:
        if is_repeated:
            gates.serve((produce_to("events", (0, batch(b"a"))), 9))
            gates.serve((fetch_from("events", (0, 0), wait_ms=10_000), 12))
            gates.recorder.accounts.clear()
        offset = int(is_repeated)
        (reply,) = gates.serve((fetch_from("events", (0, offset), wait_ms=10_000), 12))
        assert not reply.is_filled and not gates.recorder.accounts
        gates.pipeline.closed(gates.session)
        gates.recorder.accounts.clear()
        (reply,) = gates.serve((fetch_from("events", (0, offset), wait_ms=20), 12))
        while not reply.is_filled:
            await asyncio.sleep(0.01)

    recorder = gated(scenario)
    assert [account[:3] for account in recorder.accounts] == [(1, 12, 1)]
