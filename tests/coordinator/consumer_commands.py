"""The commands of the consumer group transcripts, in addition to those of classic groups.

    topic NAME COUNT · drop NAME
    hb GROUP MEMBER epoch=N [topics=t+u] [regex=] [owned=t-0,t-1|none] [instance=] [rack=] [assignor=]
       [rebalance=] [v=]
    show GROUP

A join (epoch=0) has topics=t, owned=none and rebalance=60000 by default. Assigned partitions are shown
as t-0,1,2, those pending revocation after `minus`. Classic joins report owned partitions too.
"""

from typing import Any

from runnel.coordinator.group.consumer.records import CONSUMER_KEYS
from runnel.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from runnel.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    encode_consumer_protocol,
    read_assignment,
)
from runnel.messages.heartbeat import HeartbeatRequest
from runnel.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from runnel.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from runnel.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from runnel.model.errors import ErrorCode
from runnel.schemas.coordinator import CoordinatorRecord
from runnel.schemas.group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
)
from tests.coordinator.commands import Commands, error_name, split_partition

STATES = {0: "stable", 1: "must give up", 2: "waits"}


def names(text: str) -> dict[str, list[int]]:
    """`t-0,t-1,u-0` by topic; `none` is empty."""
    topics: dict[str, list[int]] = {}
    for name, number in map(split_partition, text.split(",") if text != "none" else []):
        topics.setdefault(name, []).append(number)
    return topics


def text_of_topics(topics: dict[str, list[int]]) -> str:
    return (
        " ".join(f"{name}-{','.join(map(str, numbers))}" for name, numbers in sorted(topics.items()))
        or "nothing"
    )


class ConsumerCommands(Commands):
    """Runs transcript commands against a shard with topics."""

    def __init__(self) -> None:
        super().__init__()
        self.commands |= {"topic": self.topic, "drop": self.drop, "hb": self.hb, "show": self.show}

    def topic(self, plain: list[str], named: dict[str, str]) -> None:
        name, count = plain
        cluster = self.world.cluster
        if name in cluster.topics:
            cluster.grow(name, int(count))
        else:
            cluster.make(name, int(count))

    def drop(self, plain: list[str], named: dict[str, str]) -> None:
        self.world.cluster.delete(plain[0])

    def set_setting(self, plain: list[str], named: dict[str, str]) -> None:
        ours = {name: value for name, value in named.items() if name in self.world.cluster.settings}
        self.world.cluster.settings |= {name: int(value) for name, value in ours.items()}
        super().set_setting(plain, {name: value for name, value in named.items() if name not in ours})

    def hb(self, plain: list[str], named: dict[str, str]) -> None:
        group, member = plain
        epoch = int(named["epoch"])
        if epoch == 0:
            defaults = {"owned": "none", "rebalance": "60000"}
            if "regex" not in named:
                defaults["topics"] = "t"
            named = defaults | named
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            instance_id=named.get("instance"),
            rack_id=named.get("rack"),
            rebalance_timeout_ms=int(named.get("rebalance", -1)),
            subscribed_topic_names=named["topics"].split("+") if "topics" in named else None,
            subscribed_topic_regex=named.get("regex"),
            server_assignor=named.get("assignor"),
            topic_partitions=self.owned(named["owned"]) if "owned" in named else None,
        )
        caller = self.world.caller(member, int(named.get("v", 1)))
        reply = self.world.decide(self.world.shard.consumer_heartbeat(request, caller, self.world.now()))
        self.say(self.shown(reply))

    def owned(self, text: str) -> list[TopicPartitions]:
        topics = self.world.cluster.topics
        return [TopicPartitions(topics[name].id, numbers) for name, numbers in names(text).items()]

    def shown(self, response: Any) -> str:
        match response:
            case ConsumerGroupHeartbeatResponse(error_code=0):
                soon = "" if response.heartbeat_interval_ms in (0, 5000) else ", soon again"
                has = ""
                if response.assignment is not None:
                    has = f" has {self.by_name(response.assignment.topic_partitions)}"
                return f"{response.member_id} at {response.member_epoch}{has}{soon}"
            case SyncGroupResponse(error_code=0):
                return f"assigned {self.work_in(response.assignment)}"
            case _:
                return super().shown(response)

    def by_name(self, topics: list[Any]) -> str:
        cluster = self.world.cluster
        return text_of_topics(
            {cluster.name_of(bytes(topic.topic_id)) or "gone": topic.partitions for topic in topics}
        )

    def show_record(self, record: CoordinatorRecord) -> None:
        key: Any = record.key
        line = self.told_of_group(key, record.value) or self.told_of_member(key, record.value)
        if line:
            self.say(f"log {line}")
        elif not isinstance(key, CONSUMER_KEYS):
            super().show_record(record)

    def told_of_group(self, key: Any, value: Any) -> str | None:
        match key:
            case ConsumerGroupMetadataKey(group):
                return f"{group} " + (f"epoch {value.epoch}" if value else "removed")
            case ConsumerGroupTargetAssignmentMetadataKey(group) if value:
                return f"{group} target of epoch {value.assignment_epoch}"
            case ConsumerGroupRegularExpressionKey(group, pattern):
                return f"{group} {pattern} " + (f"is {' '.join(value.topics)}" if value else "gone")
            case GroupMetadataKey(group) if value:
                return f"{group} classic generation {value.generation} of {len(value.members)}"
        return None

    def told_of_member(self, key: Any, value: Any) -> str | None:
        match key:
            case ConsumerGroupMemberMetadataKey(group, member):
                return f"{group} {member} " + (self.said(value) if value else "gone")
            case ConsumerGroupCurrentMemberAssignmentKey(group, member) if value:
                return f"{group} {member} {self.current(value)}"
            case ConsumerGroupTargetAssignmentMemberKey(group, member) if value:
                return f"{group} {member} shall have {self.by_name(value.topic_partitions)}"
        return None

    def said(self, value: Any) -> str:
        wants = "+".join(value.subscribed_topic_names) or value.subscribed_topic_regex or "nothing"
        return f"wants {wants}" + (" in the classic way" if value.classic_member_metadata else "")

    def current(self, value: Any) -> str:
        minus = value.partitions_pending_revocation
        revoking = f" minus {self.by_name(minus)}" if minus else ""
        has = self.by_name(value.assigned_partitions)
        return f"at {value.member_epoch} {STATES[value.state]}: {has}{revoking}"

    def show(self, plain: list[str], named: dict[str, str]) -> None:
        group = self.world.shard.describe_consumer_group(plain[0])
        if group.error_code:
            self.say(f"{error_name(group.error_code)} {group.error_message}")
            return
        self.say(
            f"{group.group_id} {group.group_state} epoch {group.group_epoch} target {group.assignment_epoch} "
            f"by {group.assignor_name}"
        )
        for member in group.members:
            instance = f" @{member.instance_id}" if member.instance_id else ""
            kind = "classic" if member.member_type == 0 else "consumer"
            self.say(
                f"  {member.member_id}{instance} {kind} at {member.member_epoch} has "
                f"{self.by_name(member.assignment.topic_partitions)} of "
                f"{self.by_name(member.target_assignment.topic_partitions)}"
            )

    def describe(self, plain: list[str], named: dict[str, str]) -> None:
        reply = self.world.shard.describe(plain[0], 6)
        error = f" {reply.error_message}" if reply.error_code else ""
        self.say(f"{reply.group_id} {reply.group_state} {reply.protocol_type}/{reply.protocol_data}{error}")
        for member in reply.members:
            self.say(f"  {member.member_id} has {self.work_in(member.member_assignment)}")

    def work_in(self, assignment: bytes | memoryview) -> str:
        topics = read_assignment(bytes(assignment)).assigned_partitions if assignment else []
        return text_of_topics({topic.topic: topic.partitions for topic in topics})

    def join(self, plain: list[str], named: dict[str, str]) -> None:
        group, client = plain
        owned = [TopicPartition(*topic) for topic in names(named.get("owned", "none")).items()]
        wishes = [wish.partition(":") for wish in named.get("protocols", "coop:t").split(",")]
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=int(named.get("session", 10_000)),
            rebalance_timeout_ms=int(named.get("rebalance", 60_000)),
            member_id=named.get("id", ""),
            group_instance_id=named.get("instance"),
            protocol_type=named.get("type", "consumer"),
            protocols=[
                JoinGroupRequestProtocol(
                    name,
                    encode_consumer_protocol(ConsumerProtocolSubscription(topics.split("+"), None, owned), 1),
                )
                for name, _, topics in wishes
            ],
        )
        caller = self.world.caller(client, int(named.get("v", 3)))
        self.parked(self.world.shard.join(request, caller, self.world.now()), caller.waiter)

    def sync(self, plain: list[str], named: dict[str, str]) -> None:
        group, member, *work = plain
        shares = [share.partition(":") for share in work]
        request = SyncGroupRequest(
            group_id=group,
            generation_id=int(named["gen"]),
            member_id=member,
            group_instance_id=named.get("instance"),
            assignments=[
                SyncGroupRequestAssignment(
                    name,
                    encode_consumer_protocol(
                        ConsumerProtocolAssignment(
                            [TopicPartition(*topic) for topic in names(share).items()]
                        ),
                        1,
                    ),
                )
                for name, _, share in shares
            ],
        )
        caller = self.world.caller(version=3)
        self.parked(self.world.shard.sync(request, caller, self.world.now()), caller.waiter)

    def beat(self, plain: list[str], named: dict[str, str]) -> None:
        group, member = plain
        if not self.world.shard.has_consumer_group(group):
            super().beat(plain, named)
            return
        request = HeartbeatRequest(group, int(named["gen"]), member, named.get("instance"))
        reply = self.world.decide(self.world.shard.heartbeat_in_consumer_group(request))
        self.say(error_name(reply.error_code))

    def fetch(self, plain: list[str], named: dict[str, str]) -> None:
        group, *asked = plain
        topics = [
            OffsetFetchRequestTopics(name=topic, partition_indexes=[index])
            for topic, index in map(split_partition, asked)
        ]
        request = OffsetFetchRequestGroup(
            group, named.get("member"), int(named.get("epoch", -1)), topics=topics or None
        )
        reply = self.world.shard.fetch_offsets(request, self.world.id_of)
        if reply.error_code:
            self.say(ErrorCode.from_code(reply.error_code).name)
        for topic in reply.topics:
            for part in topic.partitions:
                self.say(f"{topic.name}-{part.partition_index} at {part.committed_offset}")
