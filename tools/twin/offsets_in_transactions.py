"""Questions about offsets that a group commits in a transaction, in every version of TxnOffsetCommit."""

from dataclasses import dataclass, field
from typing import Any

from runnel.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from runnel.messages.delete_groups import DeleteGroupsRequest
from runnel.messages.end_txn import EndTxnRequest
from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.init_producer_id import InitProducerIdRequest
from runnel.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
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
from runnel.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import NO_ID
from runnel.wire import Request
from tools.twin.comparison import Making, Twin, Twins
from tools.twin.topics import create, new_topic

TRANSACTIONS_TYPE = 1
ADDS_FROM = 5
"""Since this version of TxnOffsetCommit each transaction has an epoch of its own."""

NOT_YET = {
    ErrorCode.CONCURRENT_TRANSACTIONS.code,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code,
    ErrorCode.COORDINATOR_NOT_AVAILABLE.code,
    ErrorCode.NOT_COORDINATOR.code,
}


@dataclass(slots=True)
class Story:
    """One transactional producer and one group, in one version of TxnOffsetCommit."""

    twins: Twins
    topic: str
    version: int
    identities: dict[int, tuple[int, int]] = field(default_factory=dict)
    """A broker's port → producer id and epoch there."""

    @property
    def name(self) -> str:
        return f"offsets-in-transactions-{self.version}"

    def ask(self, question: str, request: Request | Making, version: int) -> tuple[Any, Any]:
        return self.twins.ask(
            f"offsets in transactions: {question}", request, version, ignore="producer_epoch"
        )

    def until_ready(self, request: Request | Making, version: int) -> tuple[Any, Any]:
        """Ask until both brokers are done with what came before."""
        while True:
            answers = self.twins.begin(request, version, "one").result()
            if not any(answer.error_code in NOT_YET for answer in answers):
                return answers
            self.twins.settle()

    def begin(self) -> None:
        """Take an identity."""
        self.until_ready(FindCoordinatorRequest(self.name, TRANSACTIONS_TYPE), 3)
        answers = self.until_ready(InitProducerIdRequest(self.name, 60_000), 4)
        self.learn(answers)

    def learn(self, answers: tuple[Any, Any]) -> None:
        for twin, answer in zip((self.twins.ours, self.twins.theirs), answers, strict=True):
            self.identities[twin.port] = answer.producer_id, answer.producer_epoch

    def add(self) -> None:
        """Add the group to the transaction, where the client must do that."""
        if self.version < ADDS_FROM:
            self.until_ready(
                lambda twin: AddOffsetsToTxnRequest(self.name, *self.identities[twin.port], self.name), 3
            )

    def end(self, is_commit: bool) -> None:
        version = 5 if self.version >= ADDS_FROM else 3
        answers = self.until_ready(
            lambda twin: EndTxnRequest(self.name, *self.identities[twin.port], is_commit), version
        )
        self.twins.compare("offsets in transactions: end", version, answers, "producer_epoch")
        if version >= ADDS_FROM:
            self.learn(answers)

    def compare_when_ready(self, question: str, making: Making) -> None:
        """The first commit of a transaction: Kafka may still be busy with the end of the one before."""
        while True:
            answers = self.twins.begin(making, self.version, "one").result()
            codes = {p.error_code for answer in answers for topic in answer.topics for p in topic.partitions}
            if not codes & NOT_YET:
                break
            self.twins.settle()
        self.twins.compare(f"offsets in transactions: {question}", self.version, answers)

    def commit(
        self,
        *offsets: tuple[int, int],
        topic: str | None = None,
        note: str = "note",
        epoch_change: int = 0,
        id_change: int = 0,
        **fields: Any,
    ) -> Making:
        def make(twin: Twin) -> TxnOffsetCommitRequest:
            producer_id, epoch = self.identities[twin.port]
            parts = [TxnOffsetCommitRequestPartition(index, offset, -1, note) for index, offset in offsets]
            named = {"transactional_id": self.name, "group_id": self.name, **fields}
            topics = [TxnOffsetCommitRequestTopic(topic or self.topic, parts)] if offsets else []
            return TxnOffsetCommitRequest(
                producer_id=producer_id + id_change,
                producer_epoch=epoch + epoch_change,
                topics=topics,
                **named,
            )

        return make

    def look(self, question: str) -> None:
        """Both ways to read what is committed."""
        topics = [OffsetFetchRequestTopics(self.topic, NO_ID, [0, 1, 2])]
        for require_stable in (True, False):
            for wanted in (topics, None):
                groups = [OffsetFetchRequestGroup(self.name, topics=wanted)]
                told = "stable offsets" if require_stable else "offsets"
                whole = "all " if wanted is None else ""
                request = OffsetFetchRequest(groups=groups, require_stable=require_stable)
                self.ask(f"{whole}{told} {question}", request, 8)


def ask_offsets_in_transactions(twins: Twins) -> None:
    """Offsets that count, and such that never do, in every version."""
    topic = create(twins, new_topic("offsets-in-transactions"))
    for version in range(6):
        story = Story(twins, topic, version)
        story.begin()
        _be_refused(story)
        _commit_and_abort(story)
        _interleave(story)
        _forget(story)
        _be_members(story)
        _be_fenced(story)


def _be_refused(story: Story) -> None:
    version = story.version
    if version < ADDS_FROM:
        story.ask("a group that was not added", story.commit((0, 1)), version)
    story.add()
    if version >= 3:
        # First: whoever commits without a generation makes a group in Kafka's memory, also when refused.
        by_generation = story.commit((0, 1), generation_id=1, member_id="a")
        story.compare_when_ready("a generation of nobody's group", by_generation)
        story.ask("a member of nobody's group", story.commit((0, 1), member_id="a"), version)
    for question, making in (
        ("nothing", story.commit()),
        ("a topic that is not there", story.commit((0, 1), topic="nowhere")),
        ("a partition that is not there", story.commit((9, 1))),
        ("no group", story.commit((0, 1), group_id="")),
        ("an unknown transactional id", story.commit((0, 1), transactional_id="unknown")),
        ("another producer's id", story.commit((0, 1), id_change=1000)),
        ("a later epoch", story.commit((0, 1), epoch_change=1)),
        ("a long note", story.commit((0, 1), note="x" * 5000)),
    ):
        story.ask(question, making, version)
    story.end(is_commit=False)


def _commit_and_abort(story: Story) -> None:
    for is_commit in (False, True, False):
        story.add()
        story.compare_when_ready("commit", story.commit((0, 5), (1, 6), (9, 7)))
        story.look("while the transaction is open")
        story.end(is_commit)
        _settle_end(story)
        story.look(f"after the transaction {'committed' if is_commit else 'aborted'}")


def _interleave(story: Story) -> None:
    """A plain commit after a transactional one, and before it."""
    for plain_first in (True, False):
        story.add()
        if plain_first:
            story.ask("a plain commit before", _plain_commit(story, 70), 7)
        story.compare_when_ready("commit", story.commit((0, 80)))
        if not plain_first:
            story.ask("a plain commit after", _plain_commit(story, 70), 7)
        story.look("with both kinds of commits")
        story.end(is_commit=True)
        _settle_end(story)
        story.look(f"with the {'transactional' if plain_first else 'plain'} commit last")


def _forget(story: Story) -> None:
    parts = [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(2)]
    delete = OffsetDeleteRequest(story.name, [OffsetDeleteRequestTopic(story.topic, parts)])
    story.add()
    story.compare_when_ready("commit", story.commit((0, 8), (2, 9)))
    story.ask("delete offsets", delete, 0)
    story.look("after deletion, in the transaction")
    story.end(is_commit=True)
    _settle_end(story)
    story.look("after deletion")
    story.add()
    story.compare_when_ready("commit", story.commit((0, 8)))
    story.ask("delete the group", DeleteGroupsRequest([story.name]), 2)
    story.look("after deletion of the group, in the transaction")
    story.end(is_commit=True)
    _settle_end(story)
    story.look("after deletion of the group")


def _be_members(story: Story) -> None:
    """A group with a member that has joined, and has no assignment yet."""
    join = JoinGroupRequest(story.name, 10_000, 10_000, "", None, "consumer")
    join.protocols = [JoinGroupRequestProtocol("range", b"\0\0\0\0\0\0\xff\xff\xff\xff")]
    joined = story.twins.begin(join, 3, "one").result()
    for twin, answer in zip((story.twins.ours, story.twins.theirs), joined, strict=True):
        twin.member_ids[story.name] = answer.member_id

    def of_member(offset: int, generation: int) -> Making:
        def make(twin: Twin) -> Request:
            member_id = twin.member_ids[story.name]
            return story.commit((0, offset), generation_id=generation, member_id=member_id)(twin)

        return make

    story.add()
    story.compare_when_ready("somebody who is no member", story.commit((0, 11)))
    if story.version >= 3:
        story.ask("a member", of_member(12, 1), story.version)
        story.ask("a member of another generation", of_member(13, 7), story.version)
        story.ask("a member without a generation", of_member(13, -1), story.version)
        story.ask("a stranger", story.commit((0, 1), generation_id=1, member_id="a"), story.version)
        story.ask(
            "an unknown instance",
            story.commit((0, 1), generation_id=1, member_id="a", group_instance_id="i"),
            story.version,
        )
    story.end(is_commit=True)
    _settle_end(story)
    story.look("of members")


def _be_fenced(story: Story) -> None:
    """A successor takes the transactional id while a transaction is open."""
    story.add()
    story.compare_when_ready("commit", story.commit((0, 99)))
    former = dict(story.identities)
    story.begin()
    heirs, story.identities = story.identities, former
    story.ask("commit of one who is fenced", story.commit((0, 100)), story.version)
    story.identities = heirs
    _settle_end(story)
    story.look("after fencing")


def _settle_end(story: Story) -> None:
    """Kafka writes the ends of transactions after it has acknowledged them."""
    topics = [OffsetFetchRequestTopics(story.topic, NO_ID, [0, 1, 2])]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(story.name, topics=topics)], require_stable=True
    )
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT.code
    while any(
        part.error_code == unstable
        for answer in story.twins.begin(request, 8, "one").result()
        for part in answer.groups[0].topics[0].partitions
    ):
        story.twins.settle()


def _plain_commit(story: Story, offset: int) -> OffsetCommitRequest:
    parts = [OffsetCommitRequestPartition(0, offset, -1, "plain")]
    return OffsetCommitRequest(
        story.name, -1, "", topics=[OffsetCommitRequestTopic(story.topic, NO_ID, parts)]
    )
