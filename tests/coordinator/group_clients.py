"""Simulated consumers of both protocols.

A partition is (topic name, number) here. Both kinds revoke partitions one by one, and report what they own.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any

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
    read_subscription,
)
from runnel.messages.heartbeat import HeartbeatRequest
from runnel.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from runnel.messages.leave_group import LeaveGroupRequest, MemberIdentity
from runnel.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from runnel.model.errors import ApiError, ErrorCode
from tests.coordinator.world import World

GROUP = "g"
Name = tuple[str, int]
_START_OVER = {
    ErrorCode.UNKNOWN_MEMBER_ID.code,
    ErrorCode.FENCED_MEMBER_EPOCH.code,
    ErrorCode.ILLEGAL_GENERATION.code,
}


def named(owned: set[Name]) -> list[TopicPartition]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(owned):
        topics.setdefault(topic, []).append(number)
    return [TopicPartition(topic, numbers) for topic, numbers in topics.items()]


@dataclass
class NewConsumer:
    """A client of the consumer protocol."""

    world: World
    random: Random
    name: str
    instance_id: str | None = None
    topics: frozenset[str] = frozenset({"t"})
    pattern: str | None = None
    epoch: int = 0
    owned: set[Name] = field(default_factory=set)
    target: set[Name] = field(default_factory=set)
    must_tell_all: bool = True
    is_settled: bool = False
    reported: set[Name] = field(default_factory=set)

    def step(self) -> None:
        """Revoke, take over assigned partitions, and send a heartbeat."""
        if self.owned - self.target and self.random.random() < 0.7:
            self.owned &= self.target
        if not self.owned - self.target:
            self.owned = set(self.target)
        self.report()

    def report(self) -> None:
        is_whole = self.must_tell_all or self.epoch == 0
        reports_owned = is_whole or self.owned != self.reported
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.name,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=600_000 if is_whole else -1,
            subscribed_topic_names=sorted(self.topics) if is_whole else None,
            subscribed_topic_regex=(self.pattern or "") if is_whole else None,
            topic_partitions=self._owned() if reports_owned else None,
        )
        response = self.ask(request)
        if response is None or self.random.random() < 0.05:
            # The response is lost or retriable: the next request is a full one.
            self.must_tell_all = True
        elif response.error_code in _START_OVER:
            self.start_over()
        elif response.error_code == 0:
            self.reported = set(self.owned)
            self.take(response)
        else:
            self.must_tell_all = True

    def ask(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse | None:
        try:
            decision = self.world.shard.consumer_heartbeat(
                request, self.world.caller(self.name, 1), self.world.now()
            )
        except ApiError as error:
            return ConsumerGroupHeartbeatResponse(error_code=error.code)
        reply = self.world.decide(decision)
        return None if isinstance(reply, ErrorCode) else reply

    def take(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self.must_tell_all = False
        assert response.member_epoch >= self.epoch, "the member epoch decreased"
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.target = {
                (name, number)
                for topic in response.assignment.topic_partitions
                if (name := self.world.cluster.name_of(bytes(topic.topic_id))) is not None
                for number in topic.partitions
            }

    def start_over(self) -> None:
        self.epoch = 0
        self.owned, self.target, self.reported = set(), set(), set()

    def leave(self, epoch: int = -1) -> None:
        self.owned, self.target = set(), set()
        self.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP, member_id=self.name, member_epoch=epoch, instance_id=self.instance_id
            )
        )

    def _owned(self) -> list[TopicPartitions]:
        known = self.world.cluster.topics
        return [
            TopicPartitions(known[topic.topic].id, topic.partitions)
            for topic in named(self.owned)
            if topic.topic in known
        ]


@dataclass
class CooperativeConsumer:
    """A client of the classic protocol with cooperative rebalancing, which may be the leader."""

    world: World
    random: Random
    name: str
    instance_id: str | None = None
    topics: frozenset[str] = frozenset({"t"})
    member_id: str = ""
    generation: int = -1
    owned: set[Name] = field(default_factory=set)
    waiter: int | None = None
    wants_to_join: bool = True
    to_assign: dict[str, Any] | None = None

    def step(self) -> None:
        if self.waiter is not None:
            response = self.world.answers.get(self.waiter)
            if response is None:
                return
            self.waiter = None
            self.take(response)
        elif self.wants_to_join:
            self.join()
        else:
            self.beat()

    def join(self) -> None:
        subscription = ConsumerProtocolSubscription(sorted(self.topics), None, named(self.owned))
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=600_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("coop", encode_consumer_protocol(subscription, 1))],
        )
        caller = self.world.caller(self.name, 9)
        self.park(self.world.shard.join, request, caller, JoinGroupResponse)

    def park(self, decide: Any, request: Any, caller: Any, refused: Any) -> None:
        try:
            reply = self.world.decide(decide(request, caller, self.world.now()))
        except ApiError as error:
            reply = error.error
        if isinstance(reply, ErrorCode):
            reply = refused(error_code=reply.code)
        if caller.waiter in self.world.answers:
            reply = self.world.answers[caller.waiter]
        if reply is None:
            self.waiter = caller.waiter
        else:
            self.take(reply)

    def take(self, response: Any) -> None:
        error = ErrorCode.from_code(response.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif error is ErrorCode.FENCED_INSTANCE_ID or response.error_code in _START_OVER:
            self.start_over()
        elif error is not ErrorCode.NONE:
            self.wants_to_join = True
        elif isinstance(response, JoinGroupResponse):
            self.member_id, self.generation = response.member_id, response.generation_id
            self.sync(response)
        else:
            self.assigned(response)

    def sync(self, joined: JoinGroupResponse) -> None:
        shares = self.assign(joined) if joined.leader == self.member_id else {}
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=[SyncGroupRequestAssignment(*share) for share in shares.items()],
        )
        self.park(self.world.shard.sync, request, self.world.caller(self.name, 3), SyncGroupResponse)

    def assigned(self, response: SyncGroupResponse) -> None:
        share = {
            (topic.topic, number)
            for topic in read_assignment(response.assignment).assigned_partitions
            for number in topic.partitions
        }
        self.wants_to_join = bool(self.owned - share)
        self.owned = share

    def beat(self) -> None:
        request = HeartbeatRequest(GROUP, self.generation, self.member_id, self.instance_id)
        shard = self.world.shard
        try:
            if shard.has_consumer_group(GROUP):
                reply = self.world.decide(shard.heartbeat_in_consumer_group(request))
                error = ErrorCode.from_code(reply.error_code)
            else:
                error = shard.heartbeat(request, self.world.now_ms)
        except ApiError as api_error:
            error = api_error.error
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.wants_to_join = True
        elif error is not ErrorCode.NONE:
            self.start_over()

    def start_over(self) -> None:
        self.member_id, self.generation = "", -1
        self.owned = set()
        self.wants_to_join = True

    def leave(self) -> None:
        self.owned = set()
        identity = MemberIdentity(self.member_id, self.instance_id)
        try:
            self.world.decide(
                self.world.shard.leave(LeaveGroupRequest(GROUP, members=[identity]), self.world.now())
            )
        except ApiError:
            return

    def assign(self, joined: JoinGroupResponse) -> dict[str, bytes]:
        """A sticky assignment; partitions to be revoked are not assigned yet."""
        wants = {m.member_id: read_subscription(m.metadata) for m in joined.members}
        held = {
            member_id: {
                (topic.topic, number) for topic in said.owned_partitions for number in topic.partitions
            }
            for member_id, said in wants.items()
        }
        partitions = {
            (name, number)
            for name in {topic for subscription in wants.values() for topic in subscription.topics}
            if (topic := self.world.cluster.topic(name)) is not None
            for number in range(topic.partition_count)
        }
        fair = -(-len(partitions) // len(wants))
        shares = {
            member_id: {
                held for held in sorted(has & partitions)[:fair] if held[0] in wants[member_id].topics
            }
            for member_id, has in held.items()
        }
        for partition in sorted(partitions - set().union(*held.values())):
            takers = [member_id for member_id in shares if partition[0] in wants[member_id].topics]
            shares[min(takers, key=lambda member_id: len(shares[member_id]))].add(partition)
        return {
            member_id: encode_consumer_protocol(ConsumerProtocolAssignment(named(share)), 1)
            for member_id, share in shares.items()
        }
