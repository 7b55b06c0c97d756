"""Requests with real ACLs: parts that are permitted, what is hidden, and no way around a denial."""

import asyncio
from typing import Any

import pytest

from runnel.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from runnel.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from runnel.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from runnel.messages.describe_cluster import DescribeClusterRequest
from runnel.messages.describe_groups import DescribeGroupsRequest
from runnel.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from runnel.messages.envelope import EnvelopeRequest
from runnel.messages.fetch import FetchRequest, ReplicaState
from runnel.messages.init_producer_id import InitProducerIdRequest
from runnel.messages.metadata import MetadataRequest, MetadataRequestTopic
from runnel.messages.principal import PRINCIPAL_VERSION, DefaultPrincipalData
from runnel.ports.service import CloseConnection
from runnel.security.acl import CLUSTER_NAME, Operation, ResourceType
from runnel.security.principal import USER
from runnel.wire import decode, encoded
from runnel.wire.frame import has_flexible_header, read_response_header, request_frame
from tests.broker.authorized import DENY, PREFIXED, Acls, Caller
from tests.broker.requests import batch, fetch_from, produce_to

O = Operation  # noqa: E741 - shorter lines
T, G, C, X = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
DENIED, CLUSTER_DENIED, ID_DENIED, INVALID_REQUEST = 29, 31, 53, 42
NOT_ASKED = -2147483648


def bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


def produced(response: Any) -> list[int]:
    return [part.error_code for topic in response.responses for part in topic.partition_responses]


def fetched(response: Any) -> list[int]:
    return [part.error_code for topic in response.responses for part in topic.partitions]


def test_a_changed_acl_ends_the_use_of_templates(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        alice = Caller(world, "alice")
        ids = await acls.add("open-", O.READ, O.WRITE, pattern=PREFIXED)
        produce, fetch = produce_to("open-1", (0, batch(b"a"))), fetch_from("open-1", (0, 0))
        for _ in range(3):
            assert produced(await alice.ask(produce, 9)) == [0]
        assert alice.session.template is not None
        for _ in range(3):
            assert fetched(await alice.ask(fetch, 12)) == [0]
        denial = await acls.add("open-1", O.ALL, permission=DENY, host="127.0.0.0/8")
        assert produced(await alice.ask(produce, 9)) == [DENIED]
        assert fetched(await alice.ask(fetch, 12)) == [DENIED]
        elsewhere = Caller(world, "alice", host="192.0.2.1")
        assert produced(await elsewhere.ask(produce, 9)) == [0]
        await acls.remove(denial)
        assert produced(await alice.ask(produce, 9)) == [0]
        await acls.remove(ids)
        assert produced(await alice.ask(produce, 9)) == [DENIED]
        with pytest.raises(CloseConnection):
            await alice.ask(produce_to("open-1", (0, batch(b"a")), acks=0), 9)

    secure(scenario)


def test_templates_do_not_admit_transactions(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        await acls.add("open-1", O.WRITE)
        alice = Caller(world, "alice")
        plain, transactional = batch(b"a"), bytearray(batch(b"a"))
        transactional[22] |= 16
        for name in (None, "id"):
            for _ in range(2):
                request = produce_to("open-1", (0, plain), transactional_id=name)
                assert produced(await alice.ask(request, 9)) == [0]
            for version in (9, 11):
                request = produce_to("open-1", (0, bytes(transactional)), transactional_id=name)
                assert produced(await alice.ask(request, version)) == [ID_DENIED]
        await acls.add("id", O.WRITE, resource_type=X)
        assert produced(await alice.ask(request, 9)) != [ID_DENIED]

    secure(scenario)


def test_a_fetch_session_reads_only_what_was_permitted_for_its_request(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        await acls.add("open-", O.READ, pattern=PREFIXED)
        alice, root = Caller(world, "alice"), Caller(world, "root")
        first = fetch_from("open-1", (0, 0))
        first.session_epoch = 0
        session_id = (await alice.ask(first, 12)).session_id
        # The other connection adds a topic to the session.
        more = fetch_from("secret", (0, 0))
        more.session_id, more.session_epoch = session_id, 1
        assert fetched(await root.ask(more, 12)) in ([0], [0, 0])
        again = FetchRequest(session_id=session_id, session_epoch=2)
        response = await alice.ask(again, 12)
        assert [(topic.topic, topic.partitions[0].error_code) for topic in response.responses] == [
            ("secret", DENIED)
        ]

    secure(scenario)


def test_topics_that_a_session_got_after_it_was_authorized_are_not_read(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        from runnel.broker.apis.access import ACCESS
        from runnel.broker.apis.handlers import handler_of
        from runnel.broker.runtime.check import Check
        from runnel.broker.runtime.context import Context
        from runnel.broker.runtime.promise import settled

        await acls.add("open-", O.READ, pattern=PREFIXED)
        alice, root = Caller(world, "alice"), Caller(world, "root")
        first = fetch_from("open-1", (0, 0))
        first.session_epoch = 0
        session_id = (await alice.ask(first, 12)).session_id
        context = Context(world.broker, alice.session, 12, "test")
        mine = FetchRequest(session_id=session_id, session_epoch=2)
        assert ACCESS[1][0](mine, context, Check(context, 1)) is None
        more = fetch_from("secret", (0, 0))
        more.session_id, more.session_epoch = session_id, 1
        await root.ask(more, 12)
        response: Any = await settled(handler_of(1)(mine, context))
        assert [(topic.topic, topic.partitions[0].error_code) for topic in response.responses] == [
            ("secret", DENIED)
        ]

    secure(scenario)


def test_a_denied_follower_cannot_use_the_session_of_a_consumer(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        await acls.add("open-", O.READ, pattern=PREFIXED)
        alice = Caller(world, "alice")
        first = fetch_from("open-1", (0, 0))
        first.session_epoch = 0
        session_id = (await alice.ask(first, 12)).session_id
        for version in (12, 17):
            topic = world.topic_id("secret") if version >= 13 else "secret"
            request = fetch_from(topic, (0, 0))
            request.session_id, request.session_epoch = session_id, 1
            request.replica_id, request.replica_state = 1, ReplicaState(1)
            assert fetched(await alice.ask(request, version)) == [DENIED]
            request.topics = []
            assert fetched(await alice.ask(request, version)) == []

    secure(scenario)


def test_the_metadata_log_needs_a_permission_on_the_cluster(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        await acls.add("*", O.ALL)
        request = fetch_from("__cluster_metadata", (0, 0))
        response = await Caller(world, "alice", "CONTROLLER").ask(request, 12)
        assert response.error_code == CLUSTER_DENIED and set(fetched(response)) == {CLUSTER_DENIED}
        assert not any(part.records for topic in response.responses for part in topic.partitions)
        by_id = fetch_from(bytes(15) + b"\x01", (0, 0))
        response = await Caller(world, "alice", "CONTROLLER").ask(by_id, 13)
        assert (response.error_code, response.responses) == (CLUSTER_DENIED, [])

    secure(scenario)


def test_metadata_and_descriptions_show_what_is_permitted(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        await acls.add("open-", O.READ, pattern=PREFIXED)
        await acls.add("open-2", O.ALTER_CONFIGS)
        alice = Caller(world, "alice")
        for version in (8, 13):
            request = MetadataRequest(
                topics=None,
                include_topic_authorized_operations=True,
                include_cluster_authorized_operations=True,
            )
            response = await alice.ask(request, version)
            operations = {topic.name: topic.topic_authorized_operations for topic in response.topics}
            reading = bits(O.READ, O.DESCRIBE)
            changing = bits(O.ALTER_CONFIGS, O.DESCRIBE_CONFIGS)
            assert operations == {"open-1": reading, "open-2": reading | changing}
            if version <= 10:
                assert response.cluster_authorized_operations == 0
        request = MetadataRequest([MetadataRequestTopic(name="secret"), MetadataRequestTopic(name="open-1")])
        response = await alice.ask(request, 12)
        assert {topic.name: topic.error_code for topic in response.topics} == {"secret": DENIED, "open-1": 0}
        assert {topic.topic_authorized_operations for topic in response.topics} == {NOT_ASKED}
        by_id = MetadataRequest([MetadataRequestTopic(world.topic_id("secret"), None)])
        (topic,) = (await alice.ask(by_id, 12)).topics
        assert (topic.error_code, topic.name) == (DENIED, None)

        everything = DescribeTopicPartitionsRequest([], response_partition_limit=1)
        page = await alice.ask(everything, 0)
        assert [topic.name for topic in page.topics] == ["open-1"] and page.next_cursor.topic_name == "open-2"
        everything.cursor = Cursor("open-2", 0)
        page = await alice.ask(everything, 0)
        assert [topic.name for topic in page.topics] == ["open-2"]
        assert page.next_cursor is None, "it would name a topic that is hidden"
        assert page.topics[0].topic_authorized_operations == reading | changing
        named = DescribeTopicPartitionsRequest([TopicRequest("secret"), TopicRequest("open-1")])
        found = {topic.name: topic.error_code for topic in (await alice.ask(named, 0)).topics}
        assert found == {"secret": DENIED, "open-1": 0}

        cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
        assert (await alice.ask(cluster, 1)).cluster_authorized_operations == 0
        assert (await Caller(world, "root").ask(cluster, 1)).cluster_authorized_operations == 8096
        await acls.add(CLUSTER_NAME, O.ALTER, resource_type=C)
        expected = bits(O.ALTER, O.DESCRIBE)
        assert (await alice.ask(cluster, 1)).cluster_authorized_operations == expected

    secure(scenario)


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("name", [None, "secret"])
def test_metadata_by_id_in_versions_that_do_not_accept_ids(secure, version, name):
    """Their responses cannot have a null as the name of a topic."""

    async def scenario(world: Any, acls: Acls) -> None:
        request = MetadataRequest([MetadataRequestTopic(world.topic_id("secret"), name)])
        (topic,) = (await Caller(world, "alice").ask(request, version)).topics
        assert (topic.error_code, topic.name, topic.partitions) == (INVALID_REQUEST, name or "", [])

    secure(scenario)


def test_groups_show_what_is_permitted(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        await acls.add("g-", O.READ, pattern=PREFIXED, resource_type=G)
        request = DescribeGroupsRequest(["g-1", "h"], include_authorized_operations=True)
        for _ in range(200):
            response = await Caller(world, "alice").ask(request, 5)
            found = {each.group_id: (each.error_code, each.authorized_operations) for each in response.groups}
            if found["g-1"][0] == 0:
                break
            await asyncio.sleep(0.05)
        assert found == {"g-1": (0, bits(O.READ, O.DESCRIBE)), "h": (30, NOT_ASKED)}

    secure(scenario)


def test_regular_expressions_match_only_topics_that_may_be_described(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        await acls.add("g", O.READ, resource_type=G)
        await acls.add("open-1", O.READ)
        alice = Caller(world, "alice")

        async def assigned(member_epoch: int) -> Any:
            request = ConsumerGroupHeartbeatRequest(
                "g",
                "m",
                member_epoch,
                rebalance_timeout_ms=1000,
                subscribed_topic_regex=".*",
                topic_partitions=[],
            )
            for _ in range(200):
                response = await alice.ask(request, 1)
                if response.error_code == 0 and response.assignment is not None:
                    return response
                await asyncio.sleep(0.05)
            raise AssertionError(response)

        response = await assigned(0)
        assert [each.topic_id for each in response.assignment.topic_partitions] == [world.topic_id("open-1")]
        denied = ConsumerGroupHeartbeatRequest(
            "g", "n", 0, rebalance_timeout_ms=1000, subscribed_topic_names=["secret"], topic_partitions=[]
        )
        assert (await alice.ask(denied, 1)).error_code == DENIED
        await acls.add("secret", O.DESCRIBE)
        names = set()
        for _ in range(200):
            again = ConsumerGroupHeartbeatRequest("g", "m", response.member_epoch, topic_partitions=None)
            update = await alice.ask(again, 1)
            if update.assignment is not None:
                names = {each.topic_id for each in update.assignment.topic_partitions}
                break
            await asyncio.sleep(0.05)
        assert names == {world.topic_id("open-1"), world.topic_id("secret")}

    secure(scenario, group_consumer_assignment_interval_ms="0")


def test_topics_are_created_without_showing_their_settings(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        await acls.add("new-", O.CREATE, pattern=PREFIXED)
        alice = Caller(world, "alice")
        request = CreateTopicsRequest([CreatableTopic("new-1", 3, 1), CreatableTopic("other", 3, 1)])
        by_name = {topic.name: topic for topic in (await alice.ask(request, 7)).topics}
        assert by_name["other"].error_code == DENIED and "other" not in world.broker.metadata.image.topics
        new = by_name["new-1"]
        assert (new.error_code, new.topic_config_error_code) == (0, DENIED)
        assert (new.num_partitions, new.replication_factor, new.configs) == (-1, -1, [])
        await acls.add("new-", O.DESCRIBE_CONFIGS, pattern=PREFIXED)
        (shown,) = (await alice.ask(CreateTopicsRequest([CreatableTopic("new-2", 3, 1)]), 7)).topics
        assert shown.num_partitions == 3 and shown.configs and shown.topic_config_error_code == 0

    secure(scenario)


def test_topics_are_deleted_by_those_that_may(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        await acls.add("open-1", O.DELETE)
        await acls.add("open-2", O.DESCRIBE)
        alice = Caller(world, "alice")
        ids = [world.topic_id(name) for name in ("secret", "open-2", "open-1")]
        request = DeleteTopicsRequest(topics=[DeleteTopicState(None, topic_id) for topic_id in ids])
        responses = (await alice.ask(request, 6)).responses
        found = {each.topic_id: (each.name, each.error_code) for each in responses}
        assert found == {ids[0]: (None, DENIED), ids[1]: ("open-2", DENIED), ids[2]: ("open-1", 0)}
        request = DeleteTopicsRequest(topic_names=["secret", "none", "open-1"])
        by_name = {each.name: each.error_code for each in (await alice.ask(request, 5)).responses}
        assert by_name == {"secret": DENIED, "none": DENIED, "open-1": 3}

    secure(scenario)


def test_idempotent_producers_need_a_topic_to_write_to(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        alice, request = Caller(world, "alice"), InitProducerIdRequest(transactional_id=None)
        assert (await alice.ask(request, 4)).error_code == CLUSTER_DENIED
        ids = await acls.add("open-1", O.WRITE)
        assert (await alice.ask(request, 4)).error_code == 0
        await acls.add("open", O.WRITE, pattern=PREFIXED, permission=DENY)
        assert (await alice.ask(request, 4)).error_code == CLUSTER_DENIED
        await acls.remove(ids)
        await acls.add(CLUSTER_NAME, O.IDEMPOTENT_WRITE, resource_type=C)
        assert (await alice.ask(request, 4)).error_code == 0

    secure(scenario)


def test_large_requests_are_authorized_like_small_ones(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        await acls.add("g-1", O.DESCRIBE, resource_type=G)
        alice = Caller(world, "alice")
        request = DescribeGroupsRequest([f"g-{number}" for number in range(5_000)])
        groups = (await alice.ask(request, 5)).groups
        assert len(groups) == 5_000
        assert [each.group_id for each in groups if each.error_code != 30] == ["g-1"]
        produce = produce_to("open-1", *[(0, batch(b"a"))] * 600)
        assert set(produced(await alice.ask(produce, 9))) == {DENIED}
        await acls.add("open-1", O.WRITE)
        assert set(produced(await alice.ask(produce, 9))) == {0}
        named = MetadataRequest([MetadataRequestTopic(name=f"t-{number}") for number in range(2_000)], False)
        topics = (await alice.ask(named, 9)).topics
        assert len(topics) == 2_000 and {topic.error_code for topic in topics} == {DENIED}

    secure(scenario)


def test_everyone_may_use_what_no_acl_is_about(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        alice = Caller(world, "alice")
        request = produce_to("open-1", (0, batch(b"a")))
        assert produced(await alice.ask(request, 9)) == [0]
        await acls.add("open-1", O.READ, to="User:bob")
        assert produced(await alice.ask(request, 9)) == [DENIED]
        assert produced(await alice.ask(produce_to("open-2", (0, batch(b"a"))), 9)) == [0]

    secure(scenario, **{"allow_everyone_if_no_acl_found": "true"})


def test_a_forwarded_request_is_authorized_for_its_client(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        await acls.add("new", O.CREATE)
        inner = CreateTopicsRequest([CreatableTopic("new", 1, 1), CreatableTopic("other", 1, 1)])
        frame = b"".join(request_frame(inner, 7, 9, "client"))[4:]
        principal = encoded(DefaultPrincipalData(USER, "alice"), PRINCIPAL_VERSION)
        envelope = EnvelopeRequest(
            request_data=frame,
            request_principal=PRINCIPAL_VERSION.to_bytes(2, "big") + principal,
            client_host_address=bytes([10, 0, 0, 1]),
        )
        refused = await Caller(world, "alice", "CONTROLLER").ask(envelope, 0)
        assert refused.error_code == CLUSTER_DENIED and refused.response_data is None
        await acls.add(CLUSTER_NAME, O.CLUSTER_ACTION, to="User:broker", resource_type=C)
        served = await Caller(world, "broker", "CONTROLLER").ask(envelope, 0)
        assert served.error_code == 0
        data = memoryview(served.response_data)
        _, position = read_response_header(data, has_flexible_header(CreateTopicsResponse, 7))
        response = decode(CreateTopicsResponse, 7, data, position)
        assert {topic.name: topic.error_code for topic in response.topics} == {"new": 0, "other": DENIED}

    secure(scenario)
