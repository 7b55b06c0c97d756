"""Questions about groups: membership, commits, and what tools ask of them."""

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
from tools.twin.comparison import Making, Twin, Twins
from tools.twin.topics import create, new_topic

STRANGER = "a stranger"
NOBODY = ""


@dataclass(slots=True)
class Story:
    """One group in one era of the protocol: versions that a client of that time would use together."""

    twins: Twins
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

    def ask(self, name: str, making: Making, version: int, client: str = "one") -> None:
        """Ask, and remember the member id that each broker gave."""
        answers = self.twins.ask(f"group: {name}", making, version, client=client)
        self.learn(client, answers)

    def learn(self, client: str, answers: tuple[object, object]) -> None:
        for twin, answer in zip((self.twins.ours, self.twins.theirs), answers, strict=True):
            if given := getattr(answer, "member_id", ""):
                twin.member_ids[client] = given

    def join(self, member: str = NOBODY, instance: str | None = None, **changes: object) -> Making:
        def make(twin: Twin) -> JoinGroupRequest:
            request = JoinGroupRequest(self.group, 10_000, 10_000, _id(twin, member), instance, "consumer")
            request.protocols = [JoinGroupRequestProtocol("range", subscription(self.topic))]
            for name, value in changes.items():
                setattr(request, name, value)
            return request

        return make

    def sync(
        self, member: str, generation: int, gives: tuple[str, ...] = (), instance: str | None = None
    ) -> Making:
        def make(twin: Twin) -> SyncGroupRequest:
            request = SyncGroupRequest(self.group, generation, _id(twin, member), instance)
            if self.sync_version >= 5:
                request.protocol_type, request.protocol_name = "consumer", "range"
            request.assignments = [
                SyncGroupRequestAssignment(_id(twin, name), name.encode()) for name in gives
            ]
            return request

        return make

    def beat(self, member: str, generation: int, instance: str | None = None) -> Making:
        return lambda twin: HeartbeatRequest(self.group, generation, _id(twin, member), instance)

    def commit(
        self,
        member: str,
        generation: int,
        *offsets: tuple[int, int],
        topic: str | None = None,
        note: str | None = "",
    ) -> Making:
        def make(twin: Twin) -> OffsetCommitRequest:
            parts = [OffsetCommitRequestPartition(index, offset, -1, note) for index, offset in offsets]
            name = topic or self.topic
            named = OffsetCommitRequestTopic(name, NO_ID, parts)
            if self.commit_version >= 10:
                named = OffsetCommitRequestTopic("", twin.topic_ids.get(name, b"\x07" * 16), parts)
            return OffsetCommitRequest(self.group, generation, _id(twin, member), topics=[named])

        return make

    def fetched(self, group: str, partitions: list[int] | None, topic: str | None = None) -> Making:
        version, name = self.join_version + 1, topic or self.topic

        def make(twin: Twin) -> OffsetFetchRequest:
            if version < 8:
                wanted = None if partitions is None else [OffsetFetchRequestTopic(name, partitions)]
                return OffsetFetchRequest(group, wanted)
            named = OffsetFetchRequestTopics(name, NO_ID, partitions or [])
            if version >= 10:
                named = OffsetFetchRequestTopics("", twin.topic_ids.get(name, b"\x07" * 16), partitions or [])
            one = OffsetFetchRequestGroup(group, topics=None if partitions is None else [named])
            return OffsetFetchRequest(groups=[one])

        return make

    def leave(self, member: str, instance: str | None = None) -> Making:
        def make(twin: Twin) -> LeaveGroupRequest:
            if self.sync_version < 3:
                return LeaveGroupRequest(self.group, _id(twin, member))
            return LeaveGroupRequest(self.group, members=[MemberIdentity(_id(twin, member), instance)])

        return make


def subscription(topic: str) -> bytes:
    # Kafka looks into it, and does not answer at all when it cannot read it.
    return struct.pack(f">hih{len(topic)}si", 0, 1, len(topic), topic.encode(), -1)


def _id(twin: Twin, member: str) -> str:
    return twin.member_ids.get(member, member)


def ask_groups(twins: Twins) -> None:
    """The life of a group, in every era."""
    topic = create(twins, new_topic("groups"))
    for version in range(7):
        for kind in (0, 2, 5) if version else (0,):
            keys = ["some group"] if version >= 4 else []
            request = FindCoordinatorRequest("" if keys else "some group", kind, keys)
            twins.ask(f"group: find a coordinator of type {kind}", request, version)
    twins.settle()
    for version in range(10):
        story = Story(twins, topic, version)
        _be_refused(story)
        _live(story)
        _commit(story)
        _describe(story)
        _end(story)
        if version >= 5:
            _be_static(Story(twins, topic, version, "static"))


def _be_refused(story: Story) -> None:
    version = story.join_version
    no_protocols: list[JoinGroupRequestProtocol] = []
    for name, making in (
        ("join without a group", story.join(group_id="")),
        ("join with a short session", story.join(session_timeout_ms=1)),
        ("join with a long session", story.join(session_timeout_ms=10**8)),
        ("join as a stranger", story.join(STRANGER)),
        ("join without protocols", story.join(protocols=no_protocols)),
        ("join without a protocol type", story.join(protocol_type="")),
    ):
        story.ask(name, making, version, client="refused")


def _live(story: Story) -> None:
    version, group = story.join_version, story.group
    story.ask("join", story.join(), version, client=group)
    if version >= 4:
        story.ask("join with the id that was given", story.join(group), version, client=group)
    sync_version, beat_version = story.sync_version, story.heartbeat_version
    story.ask("heartbeat before the assignment", story.beat(group, 1), beat_version)
    story.ask("sync of another generation", story.sync(group, 7), sync_version)
    story.ask("sync of a stranger", story.sync(STRANGER, 1), sync_version)
    story.ask("sync", story.sync(group, 1, gives=(group,)), sync_version)
    story.ask("sync again", story.sync(group, 1), sync_version)
    for generation in (0, 1, 2):
        story.ask(f"heartbeat in generation {generation}", story.beat(group, generation), beat_version)
    story.ask("heartbeat of a stranger", story.beat(STRANGER, 1), beat_version)
    if beat_version >= 3:
        story.ask("heartbeat of an unknown instance", story.beat(group, 1, "unknown"), beat_version)
    other = [JoinGroupRequestProtocol("other", b"")]
    story.ask("join with another type", story.join(protocol_type="connect"), version, client="refused")
    story.ask("join with other protocols", story.join(protocols=other), version, client="refused")


def _commit(story: Story) -> None:
    version, group = story.commit_version, story.group
    for name, making in (
        ("commit", story.commit(group, 1, (0, 5), (1, 6), note="note")),
        ("commit of another generation", story.commit(group, 9, (0, 5))),
        ("commit of a stranger", story.commit(STRANGER, 1, (0, 5))),
        ("commit of nobody while there are members", story.commit(NOBODY, -1, (0, 5))),
        ("commit for a partition that is not there", story.commit(group, 1, (0, 7), (9, 7))),
        ("commit for a topic that is not there", story.commit(group, 1, (0, 7), topic="nowhere")),
        ("commit with a long note", story.commit(group, 1, (0, 7), note="x" * 5000)),
        ("commit without a note", story.commit(group, 1, (1, 8), note=None)),
    ):
        story.ask(name, making, version)
    fetch_version = story.join_version + 1
    story.ask("offsets", story.fetched(group, [0, 1, 9]), fetch_version)
    story.ask("offsets of a topic that is not there", story.fetched(group, [0], "nowhere"), fetch_version)
    story.ask("offsets of an unknown group", story.fetched("unknown", [0]), fetch_version)
    if fetch_version >= 2:
        story.ask("all offsets", story.fetched(group, None), fetch_version)


def _describe(story: Story) -> None:
    twins, group = story.twins, story.group
    version = min(story.join_version, 6)
    described = DescribeGroupsRequest([group, "unknown", ""], version >= 3)
    twins.ask("group: describe", described, version)
    twins.ask("group: delete one with members", DeleteGroupsRequest([group, "unknown", ""]), range(3))
    for name in (group, "unknown", ""):
        parts = [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(9)]
        request = OffsetDeleteRequest(name, [OffsetDeleteRequestTopic(story.topic, parts)])
        twins.ask(
            f"group: delete offsets of {'one with members' if name == group else repr(name)}", request, 0
        )
    list_version = min(story.join_version, 5)
    twins.ask("group: list", ListGroupsRequest(), list_version)
    if list_version >= 4:
        for state in ("Stable", "stable", "nonsense"):
            twins.ask(f"group: list those that are {state}", ListGroupsRequest([state]), list_version)
    if list_version >= 5:
        for kind in ("classic", "Classic", "consumer", "nonsense"):
            twins.ask(f"group: list those of type {kind}", ListGroupsRequest([], [kind]), list_version)


def _end(story: Story) -> None:
    twins, group = story.twins, story.group
    story.ask("leave as a stranger", story.leave(STRANGER), story.sync_version)
    if story.sync_version >= 3:
        story.ask("leave as an unknown instance", story.leave(NOBODY, "unknown"), story.sync_version)
    story.ask("leave", story.leave(group), story.sync_version)
    story.ask("leave again", story.leave(group), story.sync_version)
    story.ask("heartbeat after leaving", story.beat(group, 1), story.heartbeat_version)
    story.ask("commit after leaving", story.commit(group, 1, (0, 5)), story.commit_version)
    story.ask("commit of nobody", story.commit(NOBODY, -1, (0, 9)), story.commit_version)
    twins.ask("group: describe an empty one", DescribeGroupsRequest([group]), min(story.join_version, 6))
    twins.ask("group: delete", DeleteGroupsRequest([group]), min(story.join_version, 2))


def _be_static(story: Story) -> None:
    """Two static members, a rebalance, and restarts of both."""
    version, beat_version, sync_version = story.join_version, story.heartbeat_version, story.sync_version
    first, second = "first", "second"
    for member in (first, second):
        for twin in (story.twins.ours, story.twins.theirs):
            twin.member_ids.pop(member, None)
    story.ask("static: join", story.join(instance=first), version, client=first)
    story.ask("static: sync", story.sync(first, 1, (first,), first), sync_version)
    joining = story.twins.begin(story.join(instance=second), version, second)
    described = DescribeGroupsRequest([story.group])
    while any(
        answer.groups[0].group_state == "Stable" for answer in story.twins.begin(described, 5, "one").result()
    ):
        story.twins.settle()
    story.ask("static: heartbeat in a rebalance", story.beat(first, 1, first), beat_version)
    story.twins.ask("group: static: describe in a rebalance", described, min(version, 6))
    story.ask("static: join again", story.join(first, first), version, client=first)
    answers = joining.result()
    story.twins.compare("group: static: join a rebalance", version, answers)
    story.learn(second, answers)
    story.ask("static: sync of the leader", story.sync(first, 2, (first, second), first), sync_version)
    story.ask("static: sync of the other", story.sync(second, 2, (), second), sync_version)
    for twin in (story.twins.ours, story.twins.theirs):
        twin.member_ids["old"] = twin.member_ids[second]
    story.ask("static: restart", story.join(instance=second), version, client=second)
    story.ask("static: heartbeat with the old id", story.beat("old", 2, second), beat_version)
    story.ask("static: heartbeat with the new id", story.beat(second, 2, second), beat_version)
    story.ask("static: restart of the leader", story.join(instance=first), version, client=first)
    story.ask("static: describe", lambda _: described, min(version, 6))
    for member in (first, second):
        story.ask("static: leave", story.leave(NOBODY, member), sync_version)
