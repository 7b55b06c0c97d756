"""Questions about groups whose partitions the broker assigns (KIP-848), error cases above all."""

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
from tools.twin.comparison import Making, Twin, Twins
from tools.twin.groups import subscription
from tools.twin.topics import create, new_topic

NOBODY = ""
STRANGER = "a stranger"
PATIENCE_S = 20.0


@dataclass(slots=True)
class Story:
    """One group in one version of the heartbeat."""

    twins: Twins
    topic: str
    version: int
    kind: str = "newer"
    epochs: dict[tuple[int, str], int] = field(default_factory=dict)
    """A broker's port and a member → the epoch that this broker gave it last."""

    @property
    def group(self) -> str:
        return f"{self.kind}-{self.version}"

    def ask(
        self, question: str, request: Request | Making, version: int | range, ignore: str = ""
    ) -> tuple[Any, Any]:
        return self.twins.ask(f"consumer group: {question}", request, version, ignore=f"client_host {ignore}")

    def id_of(self, twin: Twin, member: str) -> str:
        """Since version 1 members name themselves; before, brokers do."""
        return twin.member_ids.get(f"{self.group} {member}", member if self.version or not member else "")

    def beat(self, member: str, epoch: int | None = None, **said: Any) -> Making:
        """A heartbeat in this epoch, or the one that was given last."""

        def make(twin: Twin) -> ConsumerGroupHeartbeatRequest:
            now = self.epochs.get((twin.port, member), 0) if epoch is None else epoch
            fields = {"group_id": self.group, "member_id": self.id_of(twin, member), **said}
            request = ConsumerGroupHeartbeatRequest(member_epoch=now, **fields)
            owned = said.get("topic_partitions")
            if owned and isinstance(owned[0], int):
                topic_id = twin.topic_ids.get(self.topic, b"\x07" * 16)
                request.topic_partitions = [TopicPartitions(topic_id, owned)]
            return request

        return make

    def join(self, member: str, **said: Any) -> Making:
        told = {
            "rebalance_timeout_ms": 30_000,
            "subscribed_topic_names": [self.topic],
            "topic_partitions": [],
            **said,
        }
        return self.beat(member, 0, **told)

    def learn(self, member: str, answers: tuple[Any, Any]) -> None:
        for twin, answer in zip((self.twins.ours, self.twins.theirs), answers, strict=True):
            if answer.error_code == 0:
                twin.member_ids[f"{self.group} {member}"] = answer.member_id
                self.epochs[twin.port, member] = answer.member_epoch

    def lives(self, question: str, member: str, request: Making) -> None:
        """A heartbeat that is taken, and what it says about the member from now on."""
        self.learn(member, self.ask(question, request, self.version))

    def settle(self, member: str) -> None:
        """Heartbeats until both brokers have brought the member to the epoch of its group."""
        for _ in self.tries():
            answers = self.twins.begin(self.beat(member), self.version, "one").result()
            self.learn(member, answers)
            described = self.twins.begin(ConsumerGroupDescribeRequest([self.group]), 1, "one").result()
            if all(
                answer.member_epoch == seen.groups[0].group_epoch == seen.groups[0].assignment_epoch
                for answer, seen in zip(answers, described, strict=True)
            ):
                return
        codes = [(answer.error_code, answer.member_epoch) for answer in answers]
        raise AssertionError(f"{member} of {self.group} is never settled: {codes}")

    def assigned(self, member: str) -> dict[int, list[int]]:
        """Heartbeats until both brokers have told the member what it is to own: by port."""
        told: dict[int, list[int]] = {}
        for _ in self.tries():
            answers = self.twins.begin(self.beat(member), self.version, "one").result()
            self.learn(member, answers)
            for twin, answer in zip((self.twins.ours, self.twins.theirs), answers, strict=True):
                if answer.assignment is not None:
                    topics = answer.assignment.topic_partitions
                    told[twin.port] = [partition for topic in topics for partition in topic.partitions]
            if len(told) == 2:
                break
        return told

    def tries(self) -> Iterator[None]:
        """Turns with pauses between them: brokers assign at most once in a second."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            yield
            time.sleep(max(self.twins.settle_s, 0.05))

    def describe(self, question: str) -> None:
        self.ask(f"describe {question}", ConsumerGroupDescribeRequest([self.group]), range(2))

    def describe_shape(self, question: str) -> None:
        """Describe, and leave out which of two members got which partitions: there both may choose."""
        self.twins.ask(
            f"consumer group: describe {question}",
            ConsumerGroupDescribeRequest([self.group]),
            range(2),
            ignore="client_host partitions",
        )

    def commit(self, member: str, epoch: int | None = None, **said: Any) -> Making:
        def make(twin: Twin) -> OffsetCommitRequest:
            now = self.epochs.get((twin.port, member), 0) if epoch is None else epoch
            topic = OffsetCommitRequestTopic(self.topic, NO_ID, [OffsetCommitRequestPartition(0, 5, -1, "n")])
            return OffsetCommitRequest(
                self.group, now, self.id_of(twin, member) or member, topics=[topic], **said
            )

        return make

    def fetch(self, member: str | None, epoch: int | None = None) -> Making:
        def make(twin: Twin) -> OffsetFetchRequest:
            topics = [OffsetFetchRequestTopics(self.topic, NO_ID, [0, 1])]
            one = OffsetFetchRequestGroup(self.group, topics=topics)
            if member is not None:
                one.member_id = self.id_of(twin, member) or member
                one.member_epoch = self.epochs.get((twin.port, member), 0) if epoch is None else epoch
            return OffsetFetchRequest(groups=[one])

        return make


def ask_consumer_groups(twins: Twins) -> None:
    """The life of groups of the newer protocol."""
    topic = create(twins, new_topic("consumer-groups", 4))
    for version in range(2):
        story = Story(twins, topic, version)
        # In a group of its own: brokers take some of these, and who has joined holds partitions.
        _be_refused(Story(twins, topic, version, "refused"))
        _live(story)
        _share(story)
        _commit(story)
        _meet_classic_requests(story)
        _end(story)
        _be_static(Story(twins, topic, version, "newer-static"))
        _upgrade(Story(twins, topic, version, "upgraded"))
    _ask_patterns(Story(twins, topic, 1, "by-pattern"))
    _ask_lists(twins)


def _be_refused(story: Story) -> None:
    one = "one" if story.version else NOBODY
    questions = {
        "join without a group": story.join(one, group_id=""),
        "join without a subscription": story.join(one, subscribed_topic_names=None),
        "join without a time limit": story.join(one, rebalance_timeout_ms=-1),
        "join with a time limit of nothing": story.join(one, rebalance_timeout_ms=0),
        "join and own something": story.join(one, topic_partitions=[0]),
        "join without a word on what it owns": story.join(one, topic_partitions=None),
        "join with an empty rack": story.join(one, rack_id=""),
        "join with an empty instance": story.join(one, instance_id=""),
        "join with an unknown assignor": story.join(one, server_assignor="nonsense"),
        "join with an empty assignor": story.join(one, server_assignor=""),
        "an epoch that cannot be": story.beat(one, -3),
        "leave for a while without an instance": story.beat(one, -2),
        "leave a group that is not there": story.beat(STRANGER, -1, member_id=STRANGER),
        "a heartbeat to a group that is not there": story.beat(STRANGER, 5, member_id=STRANGER),
    }
    if story.version:
        questions |= {
            "join without a name": story.join(NOBODY),
            "join with a pattern that is none": story.join(
                one, subscribed_topic_names=None, subscribed_topic_regex="(", group_id="refused"
            ),
        }
    for question, making in questions.items():
        story.ask(question, making, story.version)
    story.describe("a group that is not there")


def _live(story: Story) -> None:
    version = story.version
    story.lives("join", "one", story.join("one"))
    story.settle("one")
    story.lives("a heartbeat", "one", story.beat("one"))
    story.lives("a heartbeat that says all", "one", story.beat("one", topic_partitions=[0, 1, 2, 3]))
    story.describe("a group of one")
    for question, making in (
        ("an epoch that is over", story.beat("one", 0, topic_partitions=None)),
        ("an epoch that has not come", story.beat("one", 7)),
        ("a stranger", story.beat(STRANGER, 1, member_id=STRANGER)),
        ("a stranger who leaves", story.beat(STRANGER, -1, member_id=STRANGER)),
        ("a rack that is empty", story.beat("one", rack_id="")),
        ("an assignor that is unknown", story.beat("one", server_assignor="nonsense")),
        ("an instance that is not its own", story.beat("one", instance_id="other")),
    ):
        story.ask(question, making, version)
    story.lives("another subscription", "one", story.beat("one", subscribed_topic_names=["nowhere"]))
    story.describe("a subscription to what is not there")
    story.lives("giving all up", "one", story.beat("one", topic_partitions=[]))
    story.settle("one")
    story.lives("the former subscription", "one", story.beat("one", subscribed_topic_names=[story.topic]))
    story.settle("one")


def _share(story: Story) -> None:
    """A second member joins: the first must give before the second can take."""
    story.lives("what one owns", "one", story.beat("one", topic_partitions=[0, 1, 2, 3]))
    story.learn("two", story.twins.begin(story.join("two"), story.version, "one").result())
    kept = story.assigned("one")
    question = "consumer group: how much is left to one who shares"
    ours, theirs = (len(kept[twin.port]) for twin in (story.twins.ours, story.twins.theirs))
    story.twins.compare(question, story.version, (ours, theirs))
    story.describe_shape("while one must give")
    story.ask("a heartbeat that does not give", story.beat("one"), story.version)

    def give(twin: Twin) -> Request:
        return story.beat("one", topic_partitions=kept[twin.port])(twin)

    story.learn("one", story.ask("giving", give, story.version))
    for member in ("one", "two"):
        story.settle(member)
    story.describe_shape("a group of two")


def _commit(story: Story) -> None:
    for version in (2, 7, 8, 9):
        for question, making in (
            ("commit", story.commit("one")),
            ("commit in an epoch that is over", story.commit("one", 1)),
            ("commit in an epoch that has not come", story.commit("one", 9)),
            ("commit of a stranger", story.commit(STRANGER, 1)),
            ("commit of nobody", story.commit(NOBODY, -1)),
        ):
            story.ask(f"{question} v{version}", making, version)
    for version in (8, 9):
        story.ask("fetch offsets", story.fetch(None), version)
    for question, making in (
        ("fetch offsets of a member", story.fetch("one")),
        ("fetch offsets in an epoch that is over", story.fetch("one", 1)),
        ("fetch offsets in an epoch that has not come", story.fetch("one", 9)),
        ("fetch offsets of a stranger", story.fetch(STRANGER, 1)),
    ):
        story.ask(question, making, 9)


def _meet_classic_requests(story: Story) -> None:
    group = story.group

    def classic(make: Any) -> Making:
        return lambda twin: make(story.id_of(twin, "one"))

    def joining(member: str, kind: str, *protocols: str) -> JoinGroupRequest:
        request = JoinGroupRequest(group, 10_000, 10_000, member, None, kind)
        request.protocols = [
            JoinGroupRequestProtocol(protocol, subscription(story.topic)) for protocol in protocols
        ]
        return request

    story.ask("a classic heartbeat", classic(lambda one: HeartbeatRequest(group, 4, one)), 4)
    story.ask("a classic heartbeat of a stranger", HeartbeatRequest(group, 4, STRANGER), 4)
    sync = classic(lambda one: SyncGroupRequest(group, 4, one, None, "consumer", "range"))
    story.ask("a classic sync", sync, 5)
    # Whether it is assigned at once depends on when the last assignment was.
    stranger_joins = joining(STRANGER, "consumer", "range")
    story.ask("join of a stranger, the classic way", stranger_joins, 5, ignore="generation_id")
    story.ask("join of another kind, the classic way", joining("", "connect", "default"), 5)
    story.ask("join without protocols, the classic way", joining("", "consumer"), 5)
    for version in (0, 5, 6):
        story.ask("describe the classic way", DescribeGroupsRequest([group]), version)
    story.ask("delete a group with members", DeleteGroupsRequest([group]), 2)
    parts = [OffsetDeleteRequestPartition(0)]
    offsets = OffsetDeleteRequest(group, [OffsetDeleteRequestTopic(story.topic, parts)])
    story.ask("delete offsets of members", offsets, 0)
    stranger = LeaveGroupRequest(group, members=[MemberIdentity(STRANGER, None)])
    story.ask("leave as a stranger, the classic way", stranger, 5)


def _end(story: Story) -> None:
    story.ask("leave", story.beat("two", -1), story.version)
    story.ask("leave again", story.beat("two", -1), story.version)

    def leave(twin: Twin) -> LeaveGroupRequest:
        one = MemberIdentity(story.id_of(twin, "one"), None)
        return LeaveGroupRequest(story.group, members=[one])

    story.ask("leave the classic way", leave, 5)
    story.describe("an empty group")
    story.ask("a heartbeat after all left", story.beat("one", 5), story.version)
    story.ask("delete an empty group", DeleteGroupsRequest([story.group]), 2)
    story.describe("a group that was deleted")


def _be_static(story: Story) -> None:
    version = story.version
    story.lives("join with an instance", "one", story.join("one", instance_id="i"))
    story.settle("one")
    story.ask("join with an instance that is there", story.join("two", instance_id="i"), version)
    story.ask(
        "a heartbeat with another's name", story.beat("two", 1, instance_id="i", member_id="x"), version
    )
    story.ask("a heartbeat without the instance", story.beat("one"), version)
    story.lives("own all", "one", story.beat("one", instance_id="i", topic_partitions=[0, 1, 2, 3]))
    story.ask("leave for a while", story.beat("one", -2, instance_id="i"), version)
    story.describe("a group whose member is away")
    story.ask("a heartbeat of one who is away", story.beat("one", 1, instance_id="i"), version)
    story.lives("come back", "two", story.join("two", instance_id="i"))
    story.settle("two")
    story.describe("a group whose member came back")
    story.ask("a heartbeat of the former", story.beat("one", 1, instance_id="i"), version)
    story.ask("leave as the former", story.beat("one", -1, instance_id="i"), version)
    story.ask("leave for good", story.beat("two", -1, instance_id="i"), version)
    story.describe("a static group that is empty")


def _upgrade(story: Story) -> None:
    """A member of the newer protocol comes into a classic group, and into one that is no consumers' group."""
    for kind, protocol in (("consumer", "range"), ("connect", "default")):
        classic = Story(story.twins, story.topic, story.version, f"{story.kind}-{kind}")
        request = JoinGroupRequest(classic.group, 10_000, 10_000, "", None, kind)
        request.protocols = [JoinGroupRequestProtocol(protocol, subscription(story.topic))]
        joined = story.twins.begin(request, 3, "classic").result()
        for twin, answer in zip((story.twins.ours, story.twins.theirs), joined, strict=True):
            twin.member_ids[f"{classic.group} old"] = answer.member_id
        into = f"into a classic group of type {kind}"
        answers = classic.ask(f"join {into}", classic.join("new"), story.version, ignore="partitions")
        classic.learn("new", answers)
        classic.describe_shape(into)
        classic.ask(f"describe the classic way {into}", DescribeGroupsRequest([classic.group]), 5)

        def leave(twin: Twin, classic: Story = classic) -> LeaveGroupRequest:
            old = MemberIdentity(classic.id_of(twin, "old"), None)
            return LeaveGroupRequest(classic.group, members=[old])

        classic.ask(f"leave the classic way {into}", leave, 5)


def _ask_patterns(story: Story) -> None:
    said = {"subscribed_topic_names": None, "subscribed_topic_regex": "consumer-gro.*"}
    story.lives("join with a pattern", "one", story.join("one", **said))
    story.assigned("one")
    story.describe_shape("by pattern")
    story.ask("a pattern that is none", story.beat("one", subscribed_topic_regex="["), 1)
    story.ask("leave with a pattern", story.beat("one", -1), 1)


def _ask_lists(twins: Twins) -> None:
    def named(*groups: str) -> ConsumerGroupDescribeRequest:
        return ConsumerGroupDescribeRequest(list(groups), True)

    twins.ask("consumer group: describe none", named(), range(2))
    twins.ask("consumer group: describe nobody's", named("", "nowhere"), range(2))
    twins.ask("consumer group: describe a classic one", named("upgraded-connect-1"), range(2))
    for states, types in (
        ([], ["consumer"]),
        (["Empty"], ["Consumer"]),
        (["nonsense"], []),
        ([], ["nonsense"]),
    ):
        request = ListGroupsRequest(states, types)
        twins.ask(f"consumer group: list {states} {types}", request, 5)
