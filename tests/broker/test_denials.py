"""Denials field by field: what they repeat of the request, and what they do not show."""

import asyncio
from typing import Any

from runnel.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from runnel.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from runnel.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from runnel.messages.create_delegation_token import CreateDelegationTokenRequest
from runnel.messages.create_topics import CreatableTopic, CreateTopicsRequest
from runnel.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from runnel.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.init_producer_id import InitProducerIdRequest
from runnel.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from runnel.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from runnel.messages.metadata import MetadataRequest, MetadataRequestTopic
from runnel.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from runnel.security.acl import Operation, ResourceType
from tests.broker.authorized import DENY, Acls, Caller
from tests.broker.requests import fetch_from

O = Operation  # noqa: E741 - shorter lines
T, G, X = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
UNKNOWN, TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, ID_DENIED = 3, 29, 30, 31, 53
NOT_ATTEMPTED, TOKEN_DENIED, UNKNOWN_ID = 55, 65, 100


def test_offsets_and_epochs_of_a_request_are_not_repeated(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        alice = Caller(world, "alice")
        for version in (4, 12, 18):
            topic = world.topic_id("secret") if version >= 13 else "secret"
            fetched = await alice.ask(fetch_from(topic, (0, 5)), version)
            part = fetched.responses[0].partitions[0]
            assert (part.error_code, part.high_watermark, part.log_start_offset) == (TOPIC_DENIED, -1, -1)
        listing = ListOffsetsRequest(topics=[ListOffsetsTopic("secret", [ListOffsetsPartition(0, -1, 77)])])
        listed = (await alice.ask(listing, 9)).topics[0].partitions[0]
        assert (listed.error_code, listed.timestamp, listed.offset) == (TOPIC_DENIED, -1, -1)
        asked = [OffsetForLeaderTopic("secret", [OffsetForLeaderPartition(0, -1, 3)])]
        epochs = await alice.ask(OffsetForLeaderEpochRequest(-1, asked), 4)
        end = epochs.topics[0].partitions[0]
        assert (end.error_code, end.leader_epoch, end.end_offset) == (TOPIC_DENIED, -1, -1)
        created = await alice.ask(CreateTopicsRequest([CreatableTopic("new", 3, 1)]), 7)
        (topic,) = created.topics
        assert (topic.error_code, topic.num_partitions, topic.replication_factor) == (TOPIC_DENIED, -1, -1)

    secure(scenario)


def test_an_unknown_id_of_a_topic_is_not_a_denial(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        await acls.add("open-1", O.READ)
        request = fetch_from(b"\x07" * 16, (0, 0))
        for version in (13, 18):
            fetched = await Caller(world, "alice").ask(request, version)
            assert fetched.responses[0].partitions[0].error_code == UNKNOWN_ID

    secure(scenario)


def test_coordinators_are_denied_key_by_key(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        await acls.add("g", O.READ, resource_type=G)
        request = FindCoordinatorRequest(coordinator_keys=["g", "h"])
        found, denied = (await Caller(world, "alice").ask(request, 4)).coordinators
        assert (found.key, found.error_code) == ("g", 0)
        assert (denied.key, denied.error_code) == ("h", GROUP_DENIED)
        assert (denied.node_id, denied.host, denied.port) == (-1, "", -1)

    secure(scenario)


def test_a_denied_producer_has_no_id(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        for name, code in ((None, CLUSTER_DENIED), ("id", ID_DENIED)):
            answer = await Caller(world, "alice").ask(InitProducerIdRequest(name, 1000), 4)
            assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)

    secure(scenario)


def test_partitions_are_refused_each_for_its_reason(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        await acls.add("id", O.WRITE, resource_type=X)
        for name in ("open-1", "none", "__consumer_offsets"):
            await acls.add(name, O.WRITE)

        async def add(who: str, *names: str) -> dict[str, int]:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="id",
                v3_and_below_topics=[AddPartitionsToTxnTopic(name, [0]) for name in names],
            )
            topics = (await Caller(world, who).ask(request, 3)).results_by_topic_v3_and_below
            return {each.name: each.results_by_partition[0].partition_error_code for each in topics}

        assert await add("alice", "open-1", "none", "secret") == {
            "open-1": NOT_ATTEMPTED,
            "none": UNKNOWN,
            "secret": TOPIC_DENIED,
        }
        for who in ("alice", "root"):
            assert await add(who, "open-1", "__consumer_offsets") == {
                "open-1": NOT_ATTEMPTED,
                "__consumer_offsets": TOPIC_DENIED,
            }
        empty = AddPartitionsToTxnRequest(v3_and_below_transactional_id="id")
        empty.v3_and_below_topics = [
            AddPartitionsToTxnTopic("secret", []),
            AddPartitionsToTxnTopic("open-1", [0]),
        ]
        answers = (await Caller(world, "alice").ask(empty, 3)).results_by_topic_v3_and_below
        assert [each.partition_error_code for topic in answers for each in topic.results_by_partition] == [
            NOT_ATTEMPTED
        ]

    secure(scenario)


def test_deletion_by_name_needs_delete_and_describe(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        await acls.add("open-1", O.DESCRIBE)
        await acls.add("none", O.DESCRIBE)
        await acls.add("open-2", O.DELETE)
        await acls.add("open-2", O.DESCRIBE, permission=DENY)
        alice, names = Caller(world, "alice"), ["open-1", "open-2", "none", "nothing"]
        expected = {"open-1": TOPIC_DENIED, "open-2": TOPIC_DENIED, "none": UNKNOWN, "nothing": TOPIC_DENIED}
        for version in (1, 5, 6):
            request = DeleteTopicsRequest(topic_names=names)
            if version == 6:
                request = DeleteTopicsRequest([DeleteTopicState(name) for name in names])
            answers = (await alice.ask(request, version)).responses
            assert {each.name: each.error_code for each in answers} == expected
        by_id = DeleteTopicsRequest([DeleteTopicState(None, world.topic_id("open-2"))])
        assert [each.error_code for each in (await alice.ask(by_id, 6)).responses] == [0]

    secure(scenario)


def test_a_group_with_a_hidden_topic_shows_nothing_of_itself(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        joining = ConsumerGroupHeartbeatRequest(
            "g", "m", 0, rebalance_timeout_ms=1000, subscribed_topic_names=["secret"], topic_partitions=[]
        )
        for _ in range(200):
            if (await Caller(world, "root").ask(joining, 1)).error_code == 0:
                break
            await asyncio.sleep(0.05)
        await acls.add("g", O.DESCRIBE, resource_type=G)
        request = ConsumerGroupDescribeRequest(["g"], include_authorized_operations=True)
        alice = Caller(world, "alice")
        (group,) = (await alice.ask(request, 1)).groups
        assert (group.group_id, group.error_code, group.members) == ("g", TOPIC_DENIED, [])
        assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("", 0, 0)
        await acls.add("secret", O.DESCRIBE)
        (group,) = (await alice.ask(request, 1)).groups
        assert (group.error_code, group.group_epoch > 0, len(group.members)) == (0, True, 1)

    secure(scenario)


def test_reassignments_are_denied_with_the_partitions_asked_for(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        request = ListPartitionReassignmentsRequest(1000, [ListPartitionReassignmentsTopics("none", [0, 4])])
        response = await Caller(world, "alice").ask(request, 0)
        (topic,) = response.topics
        assert (response.error_code, topic.name) == (CLUSTER_DENIED, "none")
        assert [(each.partition_index, each.replicas) for each in topic.partitions] == [(0, []), (4, [])]
        request.topics = None
        response = await Caller(world, "alice").ask(request, 0)
        assert (response.error_code, response.topics) == (CLUSTER_DENIED, [])

    secure(scenario)


def test_operations_on_topics_that_do_not_exist_are_listed(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        await acls.add("none", O.READ)
        names = ["none", "nothing"]
        request = MetadataRequest([MetadataRequestTopic(name=name) for name in names], False)
        request.include_topic_authorized_operations = True
        described = DescribeTopicPartitionsRequest([TopicRequest(name) for name in names])
        reading = 1 << O.READ | 1 << O.DESCRIBE
        expected = {"none": (UNKNOWN, reading), "nothing": (TOPIC_DENIED, -(2**31))}
        for asked, version in ((request, 8), (request, 13), (described, 0)):
            topics = (await Caller(world, "alice").ask(asked, version)).topics
            found = {each.name: (each.error_code, each.topic_authorized_operations) for each in topics}
            assert found == expected
        unknown_id = MetadataRequest([MetadataRequestTopic(b"\x07" * 16, None)], False)
        unknown_id.include_topic_authorized_operations = True
        (topic,) = (await Caller(world, "alice").ask(unknown_id, 13)).topics
        assert (topic.error_code, topic.topic_authorized_operations) == (UNKNOWN_ID, -(2**31))

    secure(scenario)


def test_a_denied_token_names_owner_and_requester(secure):
    async def scenario(world: Any, acls: Acls) -> None:
        request = CreateDelegationTokenRequest("User", "bob", max_lifetime_ms=-1)
        answer = await Caller(world, "alice").ask(request, 3)
        assert (answer.error_code, answer.principal_name) == (TOKEN_DENIED, "bob")
        assert answer.token_requester_principal_name == "alice"
        assert {answer.issue_timestamp_ms, answer.expiry_timestamp_ms, answer.max_timestamp_ms} == {-1}
        assert (answer.token_id, bytes(answer.hmac)) == ("", b"")

    secure(scenario, delegation_token_secret_key="the secret of tokens")
