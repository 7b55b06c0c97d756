"""Cases of classic groups: membership, commits, and the requests of tools."""

import struct
from dataclasses import dataclass

from runnel.messages.delete_groups import DeleteGroupsRequest
from runnel.messages.describe_groups import DescribeGroupsRequest
from runnel.messages.find_coordinator import FindCoordinatorRequest
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
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from runnel.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from runnel.model.ids import NO_ID
from tools.differential.comparison import Broker, BrokerPair, RequestFor
from tools.differential.topics import create, new_topic

UNKNOWN_MEMBER = "unknown"
NO_MEMBER = ""


@dataclass(slots=True)
class Scenario:
    """One group in one generation of the protocol: versions that a client would use together."""

    pair: BrokerPair
    topic: str
    join_version: int
    kind: str = "dynamic"

    @property
    def group(self) -> str:
        return f"{self.kind}-{self.join_version}"

    @property
    def sync_version(self) -> int:
        return min(self.join_version, 5)

    @property
    def heartbeat_version(self) -> int:
        return min(self.join_version, 4)

    @property
    def commit_version(self) -> int:
        return max(2, self.join_version + 1)

    def check(self, name: str, making: RequestFor, version: int, client: str = "one") -> None:
        """Send, and keep the member id that each broker assigned."""
        responses = self.pair.check(f"group: {name}", making, version, client=client)
        self.learn(client, responses)

    def learn(self, client: str, responses: tuple[object, object]) -> None:
        for broker, response in zip((self.pair.ours, self.pair.theirs), responses, strict=True):
            if given := getattr(response, "member_id", ""):
                broker.member_ids[client] = given

    def join(self, member: str = NO_MEMBER, instance: str | None = None, **changes: object) -> RequestFor:
        def make(broker: Broker) -> JoinGroupRequest:
            request = JoinGroupRequest(self.group, 10_000, 10_000, _id(broker, member), instance, "consumer")
            request.protocols = [JoinGroupRequestProtocol("range", subscription(self.topic))]
            for name, value in changes.items():
                setattr(request, name, value)
            return request

        return make

    def sync(
        self, member: str, generation: int, gives: tuple[str, ...] = (), instance: str | None = None
    ) -> RequestFor:
        def make(broker: Broker) -> SyncGroupRequest:
            request = SyncGroupRequest(self.group, generation, _id(broker, member), instance)
            if self.sync_version >= 5:
                request.protocol_type, request.protocol_name = "consumer", "range"
            request.assignments = [
                SyncGroupRequestAssignment(_id(broker, name), name.encode()) for name in gives
            ]
            return request

        return make

    def beat(self, member: str, generation: int, instance: str | None = None) -> RequestFor:
        return lambda broker: HeartbeatRequest(self.group, generation, _id(broker, member), instance)

    def commit(
        self,
        member: str,
        generation: int,
        *offsets: tuple[int, int],
        topic: str | None = None,
        note: str | None = "",
    ) -> RequestFor:
        def make(broker: Broker) -> OffsetCommitRequest:
            parts = [OffsetCommitRequestPartition(index, offset, -1, note) for index, offset in offsets]
            name = topic or self.topic
            named = OffsetCommitRequestTopic(name, NO_ID, parts)
            if self.commit_version >= 10:
                named = OffsetCommitRequestTopic("", broker.topic_ids.get(name, b"\x07" * 16), parts)
            return OffsetCommitRequest(self.group, generation, _id(broker, member), topics=[named])

        return make

    def fetched(self, group: str, partitions: list[int] | None, topic: str | None = None) -> RequestFor:
        version, name = self.join_version + 1, topic or self.topic

        def make(broker: Broker) -> OffsetFetchRequest:
            if version < 8:
                wanted = None if partitions is None else [OffsetFetchRequestTopic(name, partitions)]
                return OffsetFetchRequest(group, wanted)
            named = OffsetFetchRequestTopics(name, NO_ID, partitions or [])
            if version >= 10:
                named = OffsetFetchRequestTopics(
                    "", broker.topic_ids.get(name, b"\x07" * 16), partitions or []
                )
            one = OffsetFetchRequestGroup(group, topics=None if partitions is None else [named])
            return OffsetFetchRequest(groups=[one])

        return make

    def leave(self, member: str, instance: str | None = None) -> RequestFor:
        def make(broker: Broker) -> LeaveGroupRequest:
            if self.sync_version < 3:
                return LeaveGroupRequest(self.group, _id(broker, member))
            return LeaveGroupRequest(self.group, members=[MemberIdentity(_id(broker, member), instance)])

        return make


def subscription(topic: str) -> bytes:
    # Kafka looks into it, and does not response at all when it cannot read it.
    return struct.pack(f">hih{len(topic)}si", 0, 1, len(topic), topic.encode(), -1)


def _id(broker: Broker, member: str) -> str:
    return broker.member_ids.get(member, member)


def check_groups(pair: BrokerPair) -> None:
    """A group from the first member to the last, in every generation of the protocol."""
    topic = create(pair, new_topic("groups"))
    for version in range(7):
        for kind in (0, 2, 5) if version else (0,):
            keys = ["some group"] if version >= 4 else []
            request = FindCoordinatorRequest("" if keys else "some group", kind, keys)
            pair.check(f"group: find a coordinator of type {kind}", request, version)
    pair.settle()
    for version in range(10):
        scenario = Scenario(pair, topic, version)
        _be_refused(scenario)
        _live(scenario)
        _commit(scenario)
        _describe(scenario)
        _end(scenario)
        if version >= 5:
            _be_static(Scenario(pair, topic, version, "static"))


def _be_refused(scenario: Scenario) -> None:
    version = scenario.join_version
    no_protocols: list[JoinGroupRequestProtocol] = []
    for name, making in (
        ("join without a group", scenario.join(group_id="")),
        ("join with a short session", scenario.join(session_timeout_ms=1)),
        ("join with a long session", scenario.join(session_timeout_ms=10**8)),
        ("join as an unknown member", scenario.join(UNKNOWN_MEMBER)),
        ("join without protocols", scenario.join(protocols=no_protocols)),
        ("join without a protocol type", scenario.join(protocol_type="")),
    ):
        scenario.check(name, making, version, client="refused")


def _live(scenario: Scenario) -> None:
    version, group = scenario.join_version, scenario.group
    scenario.check("join", scenario.join(), version, client=group)
    if version >= 4:
        scenario.check("join with the id that was given", scenario.join(group), version, client=group)
    sync_version, beat_version = scenario.sync_version, scenario.heartbeat_version
    scenario.check("heartbeat before the assignment", scenario.beat(group, 1), beat_version)
    scenario.check("sync of another generation", scenario.sync(group, 7), sync_version)
    scenario.check("sync of an unknown member", scenario.sync(UNKNOWN_MEMBER, 1), sync_version)
    scenario.check("sync", scenario.sync(group, 1, gives=(group,)), sync_version)
    scenario.check("sync again", scenario.sync(group, 1), sync_version)
    for generation in (0, 1, 2):
        scenario.check(
            f"heartbeat in generation {generation}", scenario.beat(group, generation), beat_version
        )
    scenario.check("heartbeat of an unknown member", scenario.beat(UNKNOWN_MEMBER, 1), beat_version)
    if beat_version >= 3:
        scenario.check("heartbeat of an unknown instance", scenario.beat(group, 1, "unknown"), beat_version)
    other = [JoinGroupRequestProtocol("other", b"")]
    scenario.check(
        "join with another type", scenario.join(protocol_type="connect"), version, client="refused"
    )
    scenario.check("join with other protocols", scenario.join(protocols=other), version, client="refused")


def _commit(scenario: Scenario) -> None:
    version, group = scenario.commit_version, scenario.group
    for name, making in (
        ("commit", scenario.commit(group, 1, (0, 5), (1, 6), note="note")),
        ("commit of another generation", scenario.commit(group, 9, (0, 5))),
        ("commit of an unknown member", scenario.commit(UNKNOWN_MEMBER, 1, (0, 5))),
        ("commit without a member while there are members", scenario.commit(NO_MEMBER, -1, (0, 5))),
        ("commit for a partition that does not exist", scenario.commit(group, 1, (0, 7), (9, 7))),
        ("commit for a topic that does not exist", scenario.commit(group, 1, (0, 7), topic="nowhere")),
        ("commit with a long note", scenario.commit(group, 1, (0, 7), note="x" * 5000)),
        ("commit without a note", scenario.commit(group, 1, (1, 8), note=None)),
    ):
        scenario.check(name, making, version)
    fetch_version = scenario.join_version + 1
    scenario.check("offsets", scenario.fetched(group, [0, 1, 9]), fetch_version)
    scenario.check(
        "offsets of a topic that does not exist", scenario.fetched(group, [0], "nowhere"), fetch_version
    )
    scenario.check("offsets of an unknown group", scenario.fetched("unknown", [0]), fetch_version)
    if fetch_version >= 2:
        scenario.check("all offsets", scenario.fetched(group, None), fetch_version)


def _describe(scenario: Scenario) -> None:
    pair, group = scenario.pair, scenario.group
    version = min(scenario.join_version, 6)
    described = DescribeGroupsRequest([group, "unknown", ""], version >= 3)
    pair.check("group: describe", described, version)
    pair.check("group: delete one with members", DeleteGroupsRequest([group, "unknown", ""]), range(3))
    for name in (group, "unknown", ""):
        parts = [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(9)]
        request = OffsetDeleteRequest(name, [OffsetDeleteRequestTopic(scenario.topic, parts)])
        pair.check(
            f"group: delete offsets of {'one with members' if name == group else repr(name)}", request, 0
        )
    list_version = min(scenario.join_version, 5)
    pair.check("group: list", ListGroupsRequest(), list_version)
    if list_version >= 4:
        for state in ("Stable", "stable", "nonsense"):
            pair.check(f"group: list those that are {state}", ListGroupsRequest([state]), list_version)
    if list_version >= 5:
        for kind in ("classic", "Classic", "consumer", "nonsense"):
            pair.check(f"group: list those of type {kind}", ListGroupsRequest([], [kind]), list_version)


def _end(scenario: Scenario) -> None:
    pair, group = scenario.pair, scenario.group
    scenario.check("leave as an unknown member", scenario.leave(UNKNOWN_MEMBER), scenario.sync_version)
    if scenario.sync_version >= 3:
        scenario.check(
            "leave as an unknown instance", scenario.leave(NO_MEMBER, "unknown"), scenario.sync_version
        )
    scenario.check("leave", scenario.leave(group), scenario.sync_version)
    scenario.check("leave again", scenario.leave(group), scenario.sync_version)
    scenario.check("heartbeat after leaving", scenario.beat(group, 1), scenario.heartbeat_version)
    scenario.check("commit after leaving", scenario.commit(group, 1, (0, 5)), scenario.commit_version)
    scenario.check("commit without a member", scenario.commit(NO_MEMBER, -1, (0, 9)), scenario.commit_version)
    pair.check("group: describe an empty one", DescribeGroupsRequest([group]), min(scenario.join_version, 6))
    pair.check("group: delete", DeleteGroupsRequest([group]), min(scenario.join_version, 2))


def _be_static(scenario: Scenario) -> None:
    """Two static members, a rebalance, and restarts of both."""
    version, beat_version, sync_version = (
        scenario.join_version,
        scenario.heartbeat_version,
        scenario.sync_version,
    )
    first, second = "first", "second"
    for member in (first, second):
        for broker in (scenario.pair.ours, scenario.pair.theirs):
            broker.member_ids.pop(member, None)
    scenario.check("static: join", scenario.join(instance=first), version, client=first)
    scenario.check("static: sync", scenario.sync(first, 1, (first,), first), sync_version)
    joining = scenario.pair.begin(scenario.join(instance=second), version, second)
    described = DescribeGroupsRequest([scenario.group])
    while any(
        response.groups[0].group_state == "Stable"
        for response in scenario.pair.begin(described, 5, "one").result()
    ):
        scenario.pair.settle()
    scenario.check("static: heartbeat in a rebalance", scenario.beat(first, 1, first), beat_version)
    scenario.pair.check("group: static: describe in a rebalance", described, min(version, 6))
    scenario.check("static: join again", scenario.join(first, first), version, client=first)
    responses = joining.result()
    scenario.pair.compare("group: static: join a rebalance", version, responses)
    scenario.learn(second, responses)
    scenario.check(
        "static: sync of the leader", scenario.sync(first, 2, (first, second), first), sync_version
    )
    scenario.check("static: sync of the other", scenario.sync(second, 2, (), second), sync_version)
    for broker in (scenario.pair.ours, scenario.pair.theirs):
        broker.member_ids["old"] = broker.member_ids[second]
    scenario.check("static: restart", scenario.join(instance=second), version, client=second)
    scenario.check("static: heartbeat with the old id", scenario.beat("old", 2, second), beat_version)
    scenario.check("static: heartbeat with the new id", scenario.beat(second, 2, second), beat_version)
    scenario.check("static: restart of the leader", scenario.join(instance=first), version, client=first)
    scenario.check("static: describe", lambda _: described, min(version, 6))
    for member in (first, second):
        scenario.check("static: leave", scenario.leave(NO_MEMBER, member), sync_version)
