"""Consumer groups (KIP-848) over the wire: versions, features, settings, patterns, racks, restarts."""

from typing import Any

import pytest

from runnel.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from runnel.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from runnel.messages.heartbeat import HeartbeatRequest
from runnel.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from runnel.messages.list_groups import ListGroupsRequest
from runnel.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from runnel.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from runnel.model.errors import ErrorCode
from tests.broker.group_calls import codes, commit_request, play
from tests.broker.world import BrokerWorld, Client

_GROUP = 32
"""Kafka's resource type of groups."""


def joining(member_id: str = "m", group: str = "g", **fields: Any) -> ConsumerGroupHeartbeatRequest:
    if "subscribed_topic_regex" not in fields:
        fields.setdefault("subscribed_topic_names", ["t"])
    return ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member_id, rebalance_timeout_ms=60_000, topic_partitions=[], **fields
    )


def beating(member_id: str, epoch: int, group: str = "g", **fields: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields)


def numbers(reply: Any) -> list[int]:
    assert reply.error_code == 0, reply
    return [number for topic in reply.assignment.topic_partitions for number in topic.partitions]


async def described(client: Client, group: str = "g") -> Any:
    reply = await client.ask(ConsumerGroupDescribeRequest([group], include_authorized_operations=True), 1)
    return reply.groups[0]


@pytest.mark.parametrize("version", [0, 1])
def test_join_heartbeat_and_leave_in_every_version(tmp_path, version) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        joined = await client.ask(joining("" if version == 0 else "m"), version)
        assert numbers(joined) == [0, 1]
        assert joined.member_epoch == 2
        assert joined.heartbeat_interval_ms == 5000
        again = await client.ask(beating(joined.member_id, 2), version)
        assert (again.member_epoch, again.assignment) == (2, None)
        seen = await described(client)
        assert (seen.group_state, seen.group_epoch, seen.assignment_epoch) == ("Stable", 2, 2)
        assert seen.members[0].member_id == joined.member_id
        assert seen.members[0].client_host.startswith("/")
        assert [topic.topic_name for topic in seen.members[0].assignment.topic_partitions] == ["t"]
        assert seen.authorized_operations == 3400
        left = await client.ask(beating(joined.member_id, -1), version)
        assert (left.error_code, left.member_epoch) == (0, -1)
        assert (await described(client)).group_state == "Empty"

    play(tmp_path, scenario)


def test_member_id_is_required_from_version_1(tmp_path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        reply = await client.ask(joining(""), 1)
        assert reply.error_code == ErrorCode.INVALID_REQUEST.code
        assert reply.error_message == "MemberId can't be empty."

    play(tmp_path, scenario)


def test_group_version_disabled(tmp_path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        lower = UpdateFeaturesRequest(
            feature_updates=[FeatureUpdateKey("group.version", 0, upgrade_type=2)], timeout_ms=1000
        )
        assert (await client.ask(lower, 1)).error_code == 0
        reply = await client.ask(joining(), 1)
        assert reply.error_code == ErrorCode.UNSUPPORTED_VERSION.code

    play(tmp_path, scenario)


def test_group_survives_a_restart(tmp_path) -> None:
    async def before(world: BrokerWorld, client: Client) -> None:
        assert numbers(await client.ask(joining("a"), 1)) == [0, 1]
        await client.ask(joining("b"), 1)
        topic_id = world.broker.metadata.image.topics["t"].id
        gave_up = beating("a", 2, topic_partitions=[TopicPartitions(topic_id, [0])])
        assert (await client.ask(gave_up, 1)).member_epoch == 3
        assert codes(await client.ask(commit_request({0: 5}, generation=3, member_id="a"), 9)) == [0]

    async def after(world: BrokerWorld, client: Client) -> None:
        seen = await described(client)
        assert {member.member_id: member.member_epoch for member in seen.members} == {"a": 3, "b": 3}
        assert numbers(await client.ask(beating("b", 3), 1)) == [1]
        asked = OffsetFetchRequestGroup("g", "a", 3, [OffsetFetchRequestTopics("t", partition_indexes=[0])])
        fetched = (await client.ask(OffsetFetchRequest(groups=[asked]), 9)).groups[0]
        assert fetched.topics[0].partitions[0].committed_offset == 5
        asked.member_epoch = 2
        fetched = (await client.ask(OffsetFetchRequest(groups=[asked]), 9)).groups[0]
        assert fetched.error_code == ErrorCode.STALE_MEMBER_EPOCH.code

    play(tmp_path, before, group_consumer_assignment_interval_ms="0")
    play(tmp_path, after, group_consumer_assignment_interval_ms="0")


def test_patterns_are_untrusted_and_matched_in_linear_time(tmp_path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        await world.create("a" * 200, partitions=1)
        # Exponential for a backtracking matcher.
        hopeless = joining("x", "h", subscribed_topic_regex="(a|aa|a*)+b", subscribed_topic_names=None)
        assert numbers(await client.ask(hopeless, 1)) == []
        found = joining("y", "k", subscribed_topic_regex="a{200}|t", subscribed_topic_names=None)
        assert sorted(numbers(await client.ask(found, 1))) == [0, 0, 1]
        seen = await described(client, "k")
        assert {topic.topic_name for topic in seen.members[0].assignment.topic_partitions} == {"a" * 200, "t"}
        assert seen.members[0].subscribed_topic_regex == "a{200}|t"
        refused = await client.ask(joining("z", "m", subscribed_topic_regex="(?=a)"), 1)
        assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION.code
        assert "(?=a)" in refused.error_message
        # A topic created later is matched at the next heartbeat.
        await world.create("t2", partitions=1)
        wide = joining("w", "w", subscribed_topic_regex="t.*", subscribed_topic_names=None)
        assert len(numbers(await client.ask(wide, 1))) == 3
        await world.create("t3", partitions=1)
        assert len(numbers(await client.ask(beating("w", 2, "w"), 1))) == 4

    play(tmp_path, scenario, group_consumer_assignment_interval_ms="0")


def test_group_settings(tmp_path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        slower = AlterableConfig("consumer.heartbeat.interval.ms", 0, "9000")
        resource = AlterConfigsResource(_GROUP, "g", [slower])
        reply = await client.ask(IncrementalAlterConfigsRequest([resource]), 1)
        assert reply.responses[0].error_code == 0, reply
        assert (await client.ask(joining(), 1)).heartbeat_interval_ms == 9000
        assert (await client.ask(joining("m", "other"), 1)).heartbeat_interval_ms == 5000

    play(tmp_path, scenario)


def test_list_groups_by_type(tmp_path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        await client.ask(joining(), 1)
        await client.ask(commit_request({0: 1}, group="simple"), 8)
        listed = (await client.ask(ListGroupsRequest(types_filter=["consumer"]), 5)).groups
        assert [(group.group_id, group.group_state, group.group_type) for group in listed] == [
            ("g", "Stable", "consumer")
        ]
        everyone = (await client.ask(ListGroupsRequest(), 5)).groups
        assert {group.group_id: group.group_type for group in everyone} == {
            "g": "consumer",
            "simple": "classic",
        }
        missing = await described(client, "simple")
        assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND.code
        assert missing.error_message == "Group simple is not a consumer group."

    play(tmp_path, scenario)


def test_classic_heartbeat_of_an_unknown_member_in_a_consumer_group(tmp_path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        await client.ask(joining(), 1)
        reply = await client.ask(HeartbeatRequest("g", 2, "m"), 4)
        assert reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID.code

    play(tmp_path, scenario)
