"""Cases of consumer groups of the newer protocol (KIP-848), error cases above all."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from runnel.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from runnel.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from runnel.messages.delete_groups import DeleteGroupsRequest
from runnel.messages.describe_groups import DescribeGroupsRequest
from runnel.messages.heartbeat import HeartbeatRequest
from runnel.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from runnel.messages.leave_group import LeaveGroupRequest, MemberIdentity
from runnel.messages.list_groups import ListGroupsRequest
from runnel.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from runnel.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from runnel.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from runnel.messages.sync_group import SyncGroupRequest
from runnel.model.ids import NO_ID
from runnel.wire import Request
from tools.differential.comparison import Broker, BrokerPair, RequestFor
from tools.differential.groups import subscription
from tools.differential.topics import create, new_topic

NO_MEMBER = ""
UNKNOWN_MEMBER = "unknown"
TIMEOUT_S = 20.0


@dataclass(slots=True)
class Scenario:
    """One group in one version of the heartbeat."""

    pair: BrokerPair
    topic: str
    version: int
    kind: str = "newer"
    epochs: dict[tuple[int, str], int] = field(default_factory=dict)
    """A broker's port and a member → its last epoch there."""
    assignments: dict[tuple[int, str], list[int]] = field(default_factory=dict)
    """A broker's port and a member → the partitions of its last assignment there."""

    @property
    def group(self) -> str:
        return f"{self.kind}-{self.version}"

    def check(
        self, case: str, request: Request | RequestFor, version: int | range, ignore: str = ""
    ) -> tuple[Any, Any]:
        return self.pair.check(f"consumer group: {case}", request, version, ignore=f"client_host {ignore}")

    def id_of(self, broker: Broker, member: str) -> str:
        """Since version 1 members choose their ids; before, brokers do."""
        return broker.member_ids.get(f"{self.group} {member}", member if self.version or not member else "")

    def beat(self, member: str, epoch: int | None = None, **fields_set: Any) -> RequestFor:
        """A heartbeat in this epoch, or in the last one received."""

        def make(broker: Broker) -> ConsumerGroupHeartbeatRequest:
            now = self.epochs.get((broker.port, member), 0) if epoch is None else epoch
            fields = {"group_id": self.group, "member_id": self.id_of(broker, member), **fields_set}
            request = ConsumerGroupHeartbeatRequest(member_epoch=now, **fields)
            owned = fields_set.get("topic_partitions")
            if owned and isinstance(owned[0], int):
                topic_id = broker.topic_ids.get(self.topic, b"\x07" * 16)
                request.topic_partitions = [TopicPartitions(topic_id, owned)]
            return request

        return make

    def join(self, member: str, **fields_set: Any) -> RequestFor:
        joining = {
            "rebalance_timeout_ms": 30_000,
            "subscribed_topic_names": [self.topic],
            "topic_partitions": [],
            **fields_set,
        }
        return self.beat(member, 0, **joining)

    def learn(self, member: str, responses: tuple[Any, Any]) -> None:
        for broker, response in zip((self.pair.ours, self.pair.theirs), responses, strict=True):
            if response.error_code == 0:
                broker.member_ids[f"{self.group} {member}"] = response.member_id
                self.epochs[broker.port, member] = response.member_epoch
                if response.assignment is not None:
                    topics = response.assignment.topic_partitions
                    partitions = [partition for topic in topics for partition in topic.partitions]
                    self.assignments[broker.port, member] = partitions

    def lives(self, case: str, member: str, request: RequestFor) -> None:
        """A heartbeat that is accepted, and the epoch and id that it returns."""
        self.learn(member, self.check(case, request, self.version))

    def settle(self, member: str) -> None:
        """Heartbeats until the member has the epoch of its group on both brokers."""
        for _ in self.tries():
            responses = self.pair.begin(self.beat(member), self.version, "one").result()
            self.learn(member, responses)
            described = self.pair.begin(ConsumerGroupDescribeRequest([self.group]), 1, "one").result()
            if all(
                response.member_epoch == seen.groups[0].group_epoch == seen.groups[0].assignment_epoch
                for response, seen in zip(responses, described, strict=True)
            ):
                return
        codes = [(response.error_code, response.member_epoch) for response in responses]
        raise AssertionError(f"{member} of {self.group} is never settled: {codes}")

    def assigned(self, member: str) -> dict[int, list[int]]:
        """Heartbeats until both brokers have assigned partitions to the member: by port."""
        ports = [broker.port for broker in (self.pair.ours, self.pair.theirs)]
        for _ in self.tries():
            self.learn(member, self.pair.begin(self.beat(member), self.version, "one").result())
            if all(self.assignments.get((port, member)) for port in ports):
                break
        return {port: self.assignments[port, member] for port in ports}

    def tries(self) -> Iterator[None]:
        """Attempts with pauses between them: brokers assign at most once in a second."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            yield
            time.sleep(max(self.pair.settle_s, 0.05))

    def describe(self, case: str) -> None:
        self.check(f"describe {case}", ConsumerGroupDescribeRequest([self.group]), range(2))

    def describe_shape(self, case: str) -> None:
        """Describe, ignoring which of two members has which partitions: both choices are valid."""
        self.pair.check(
            f"consumer group: describe {case}",
            ConsumerGroupDescribeRequest([self.group]),
            range(2),
            ignore="client_host partitions",
        )

    def commit(self, member: str, epoch: int | None = None, **fields_set: Any) -> RequestFor:
        def make(broker: Broker) -> OffsetCommitRequest:
            now = self.epochs.get((broker.port, member), 0) if epoch is None else epoch
            topic = OffsetCommitRequestTopic(self.topic, NO_ID, [OffsetCommitRequestPartition(0, 5, -1, "n")])
            return OffsetCommitRequest(
                self.group, now, self.id_of(broker, member) or member, topics=[topic], **fields_set
            )

        return make

    def fetch(self, member: str | None, epoch: int | None = None) -> RequestFor:
        def make(broker: Broker) -> OffsetFetchRequest:
            topics = [OffsetFetchRequestTopics(self.topic, NO_ID, [0, 1])]
            one = OffsetFetchRequestGroup(self.group, topics=topics)
            if member is not None:
                one.member_id = self.id_of(broker, member) or member
                one.member_epoch = self.epochs.get((broker.port, member), 0) if epoch is None else epoch
            return OffsetFetchRequest(groups=[one])

        return make


def check_consumer_groups(pair: BrokerPair) -> None:
    """Groups of the newer protocol, from the first member to the last."""
    topic = create(pair, new_topic("consumer-groups", 4))
    for version in range(2):
        scenario = Scenario(pair, topic, version)
        # In a group of its own: brokers take some of these, and who has joined holds partitions.
        _be_refused(Scenario(pair, topic, version, "refused"))
        _live(scenario)
        _share(scenario)
        _commit(scenario)
        _meet_classic_requests(scenario)
        _end(scenario)
        _be_static(Scenario(pair, topic, version, "newer-static"))
        _upgrade(Scenario(pair, topic, version, "upgraded"))
    _check_patterns(Scenario(pair, topic, 1, "by-pattern"))
    _check_lists(pair)


def _be_refused(scenario: Scenario) -> None:
    one = "one" if scenario.version else NO_MEMBER
    cases = {
        "join without a group": scenario.join(one, group_id=""),
        "join without a subscription": scenario.join(one, subscribed_topic_names=None),
        "join without a time limit": scenario.join(one, rebalance_timeout_ms=-1),
        "join with a rebalance timeout of 0": scenario.join(one, rebalance_timeout_ms=0),
        "join and own something": scenario.join(one, topic_partitions=[0]),
        "join without a word on what it owns": scenario.join(one, topic_partitions=None),
        "join with an empty rack": scenario.join(one, rack_id=""),
        "join with an empty instance": scenario.join(one, instance_id=""),
        "join with an unknown assignor": scenario.join(one, server_assignor="nonsense"),
        "join with an empty assignor": scenario.join(one, server_assignor=""),
        "an invalid epoch": scenario.beat(one, -3),
        "leave for a while without an instance": scenario.beat(one, -2),
        "leave a group that does not exist": scenario.beat(UNKNOWN_MEMBER, -1, member_id=UNKNOWN_MEMBER),
        "a heartbeat to a group that does not exist": scenario.beat(
            UNKNOWN_MEMBER, 5, member_id=UNKNOWN_MEMBER
        ),
    }
    if scenario.version:
        cases |= {
            "join without a name": scenario.join(NO_MEMBER),
            "join with an invalid pattern": scenario.join(
                one, subscribed_topic_names=None, subscribed_topic_regex="(", group_id="refused"
            ),
        }
    for case, making in cases.items():
        scenario.check(case, making, scenario.version)
    scenario.describe("a group that does not exist")


def _live(scenario: Scenario) -> None:
    version = scenario.version
    scenario.lives("join", "one", scenario.join("one"))
    scenario.settle("one")
    scenario.lives("a heartbeat", "one", scenario.beat("one"))
    scenario.lives("a full heartbeat", "one", scenario.beat("one", topic_partitions=[0, 1, 2, 3]))
    scenario.describe("a group of one")
    for case, making in (
        ("an epoch that is over", scenario.beat("one", 0, topic_partitions=None)),
        ("an epoch that has not come", scenario.beat("one", 7)),
        ("an unknown member", scenario.beat(UNKNOWN_MEMBER, 1, member_id=UNKNOWN_MEMBER)),
        ("an unknown member leaves", scenario.beat(UNKNOWN_MEMBER, -1, member_id=UNKNOWN_MEMBER)),
        ("a rack that is empty", scenario.beat("one", rack_id="")),
        ("an assignor that is unknown", scenario.beat("one", server_assignor="nonsense")),
        ("an instance that is not its own", scenario.beat("one", instance_id="other")),
    ):
        scenario.check(case, making, version)
    scenario.lives("another subscription", "one", scenario.beat("one", subscribed_topic_names=["nowhere"]))
    scenario.describe("a subscription to a missing topic")
    scenario.lives("giving all up", "one", scenario.beat("one", topic_partitions=[]))
    scenario.settle("one")
    scenario.lives(
        "the former subscription", "one", scenario.beat("one", subscribed_topic_names=[scenario.topic])
    )
    scenario.settle("one")


def _share(scenario: Scenario) -> None:
    """A second member joins: the first must revoke before the second is assigned."""
    scenario.lives("what one owns", "one", scenario.beat("one", topic_partitions=[0, 1, 2, 3]))
    scenario.learn("two", scenario.pair.begin(scenario.join("two"), scenario.version, "one").result())
    scenario.assignments.clear()
    kept = scenario.assigned("one")
    case = "consumer group: how much is left to one who shares"
    ours, theirs = (len(kept[broker.port]) for broker in (scenario.pair.ours, scenario.pair.theirs))
    scenario.pair.compare(case, scenario.version, (ours, theirs))
    scenario.describe_shape("while one must give")
    scenario.check("a heartbeat that does not give", scenario.beat("one"), scenario.version)

    def give(broker: Broker) -> Request:
        return scenario.beat("one", topic_partitions=kept[broker.port])(broker)

    scenario.learn("one", scenario.check("giving", give, scenario.version))
    for member in ("one", "two"):
        scenario.settle(member)
    scenario.describe_shape("a group of two")


def _commit(scenario: Scenario) -> None:
    for version in (2, 7, 8, 9):
        for case, making in (
            ("commit", scenario.commit("one")),
            ("commit in an epoch that is over", scenario.commit("one", 1)),
            ("commit in an epoch that has not come", scenario.commit("one", 9)),
            ("commit of an unknown member", scenario.commit(UNKNOWN_MEMBER, 1)),
            ("commit without a member", scenario.commit(NO_MEMBER, -1)),
        ):
            scenario.check(f"{case} v{version}", making, version)
    for version in (8, 9):
        scenario.check("fetch offsets", scenario.fetch(None), version)
    for case, making in (
        ("fetch offsets of a member", scenario.fetch("one")),
        ("fetch offsets in an epoch that is over", scenario.fetch("one", 1)),
        ("fetch offsets in an epoch that has not come", scenario.fetch("one", 9)),
        ("fetch offsets of an unknown member", scenario.fetch(UNKNOWN_MEMBER, 1)),
    ):
        scenario.check(case, making, 9)


def _meet_classic_requests(scenario: Scenario) -> None:
    group = scenario.group

    def classic(make: Any) -> RequestFor:
        return lambda broker: make(scenario.id_of(broker, "one"))

    def joining(member: str, kind: str, *protocols: str) -> JoinGroupRequest:
        request = JoinGroupRequest(group, 10_000, 10_000, member, None, kind)
        request.protocols = [
            JoinGroupRequestProtocol(protocol, subscription(scenario.topic)) for protocol in protocols
        ]
        return request

    scenario.check("a classic heartbeat", classic(lambda one: HeartbeatRequest(group, 4, one)), 4)
    scenario.check("a classic heartbeat of an unknown member", HeartbeatRequest(group, 4, UNKNOWN_MEMBER), 4)
    sync = classic(lambda one: SyncGroupRequest(group, 4, one, None, "consumer", "range"))
    scenario.check("a classic sync", sync, 5)
    # Whether it is assigned at once depends on when the last assignment was.
    unknown_joins = joining(UNKNOWN_MEMBER, "consumer", "range")
    scenario.check("join of an unknown member, the classic way", unknown_joins, 5, ignore="generation_id")
    scenario.check("join of another kind, the classic way", joining("", "connect", "default"), 5)
    scenario.check("join without protocols, the classic way", joining("", "consumer"), 5)
    for version in (0, 5, 6):
        scenario.check("describe the classic way", DescribeGroupsRequest([group]), version)
    scenario.check("delete a group with members", DeleteGroupsRequest([group]), 2)
    parts = [OffsetDeleteRequestPartition(0)]
    offsets = OffsetDeleteRequest(group, [OffsetDeleteRequestTopic(scenario.topic, parts)])
    scenario.check("delete offsets of members", offsets, 0)
    unknown = LeaveGroupRequest(group, members=[MemberIdentity(UNKNOWN_MEMBER, None)])
    scenario.check("leave as an unknown member, the classic way", unknown, 5)


def _end(scenario: Scenario) -> None:
    scenario.check("leave", scenario.beat("two", -1), scenario.version)
    scenario.check("leave again", scenario.beat("two", -1), scenario.version)

    def leave(broker: Broker) -> LeaveGroupRequest:
        one = MemberIdentity(scenario.id_of(broker, "one"), None)
        return LeaveGroupRequest(scenario.group, members=[one])

    scenario.check("leave the classic way", leave, 5)
    scenario.describe("an empty group")
    scenario.check("a heartbeat after all left", scenario.beat("one", 5), scenario.version)
    scenario.check("delete an empty group", DeleteGroupsRequest([scenario.group]), 2)
    scenario.describe("a group that was deleted")


def _be_static(scenario: Scenario) -> None:
    version = scenario.version
    scenario.lives("join with an instance", "one", scenario.join("one", instance_id="i"))
    scenario.settle("one")
    scenario.check("join with an instance that exists", scenario.join("two", instance_id="i"), version)
    scenario.check(
        "a heartbeat with another's name", scenario.beat("two", 1, instance_id="i", member_id="x"), version
    )
    scenario.check("a heartbeat without the instance", scenario.beat("one"), version)
    scenario.lives("own all", "one", scenario.beat("one", instance_id="i", topic_partitions=[0, 1, 2, 3]))
    scenario.check("leave for a while", scenario.beat("one", -2, instance_id="i"), version)
    scenario.describe("a group whose member is away")
    scenario.check("a heartbeat of one who is away", scenario.beat("one", 1, instance_id="i"), version)
    scenario.lives("come back", "two", scenario.join("two", instance_id="i"))
    scenario.settle("two")
    scenario.describe("a group whose member came back")
    scenario.check("a heartbeat of the former", scenario.beat("one", 1, instance_id="i"), version)
    scenario.check("leave as the former", scenario.beat("one", -1, instance_id="i"), version)
    scenario.check("leave for good", scenario.beat("two", -1, instance_id="i"), version)
    scenario.describe("a static group that is empty")


def _upgrade(scenario: Scenario) -> None:
    """A member of the newer protocol joins a classic group, and one of another protocol type."""
    for kind, protocol in (("consumer", "range"), ("connect", "default")):
        classic = Scenario(scenario.pair, scenario.topic, scenario.version, f"{scenario.kind}-{kind}")
        request = JoinGroupRequest(classic.group, 10_000, 10_000, "", None, kind)
        request.protocols = [JoinGroupRequestProtocol(protocol, subscription(scenario.topic))]
        joined = scenario.pair.begin(request, 3, "classic").result()
        for broker, response in zip((scenario.pair.ours, scenario.pair.theirs), joined, strict=True):
            broker.member_ids[f"{classic.group} old"] = response.member_id
        into = f"into a classic group of type {kind}"
        responses = classic.check(f"join {into}", classic.join("new"), scenario.version, ignore="partitions")
        classic.learn("new", responses)
        classic.describe_shape(into)
        classic.check(f"describe the classic way {into}", DescribeGroupsRequest([classic.group]), 5)

        def leave(broker: Broker, classic: Scenario = classic) -> LeaveGroupRequest:
            old = MemberIdentity(classic.id_of(broker, "old"), None)
            return LeaveGroupRequest(classic.group, members=[old])

        classic.check(f"leave the classic way {into}", leave, 5)


def _check_patterns(scenario: Scenario) -> None:
    fields_set = {"subscribed_topic_names": None, "subscribed_topic_regex": "consumer-gro.*"}
    scenario.lives("join with a pattern", "one", scenario.join("one", **fields_set))
    scenario.assigned("one")
    scenario.describe_shape("by pattern")
    scenario.check("an invalid pattern", scenario.beat("one", subscribed_topic_regex="["), 1)
    scenario.check("leave with a pattern", scenario.beat("one", -1), 1)


def _check_lists(pair: BrokerPair) -> None:
    def named(*groups: str) -> ConsumerGroupDescribeRequest:
        return ConsumerGroupDescribeRequest(list(groups), True)

    pair.check("consumer group: describe none", named(), range(2))
    pair.check("consumer group: describe unknown groups", named("", "nowhere"), range(2))
    pair.check("consumer group: describe a classic one", named("upgraded-connect-1"), range(2))
    for states, types in (
        ([], ["consumer"]),
        (["Empty"], ["Consumer"]),
        (["nonsense"], []),
        ([], ["nonsense"]),
    ):
        request = ListGroupsRequest(states, types)
        pair.check(f"consumer group: list {states} {types}", request, 5)
