"""Cases of offsets that a group commits in a transaction, in every version of TxnOffsetCommit."""

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
from tools.differential.comparison import Broker, BrokerPair, RequestFor
from tools.differential.topics import create, new_topic

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
class Scenario:
    """One transactional producer and one group, in one version of TxnOffsetCommit."""

    pair: BrokerPair
    topic: str
    version: int
    identities: dict[int, tuple[int, int]] = field(default_factory=dict)
    """A broker's port → producer id and epoch there."""

    @property
    def name(self) -> str:
        return f"offsets-in-transactions-{self.version}"

    def check(self, case: str, request: Request | RequestFor, version: int) -> tuple[Any, Any]:
        return self.pair.check(f"offsets in transactions: {case}", request, version, ignore="producer_epoch")

    def until_ready(self, request: Request | RequestFor, version: int) -> tuple[Any, Any]:
        """Send until both brokers have completed what came before."""
        while True:
            responses = self.pair.begin(request, version, "one").result()
            if not any(response.error_code in NOT_YET for response in responses):
                return responses
            self.pair.settle()

    def begin(self) -> None:
        """Initialise the producer id."""
        self.until_ready(FindCoordinatorRequest(self.name, TRANSACTIONS_TYPE), 3)
        responses = self.until_ready(InitProducerIdRequest(self.name, 60_000), 4)
        self.learn(responses)

    def learn(self, responses: tuple[Any, Any]) -> None:
        for broker, response in zip((self.pair.ours, self.pair.theirs), responses, strict=True):
            self.identities[broker.port] = response.producer_id, response.producer_epoch

    def add(self) -> None:
        """Add the group to the transaction, where the client must do that."""
        if self.version < ADDS_FROM:
            self.until_ready(
                lambda broker: AddOffsetsToTxnRequest(self.name, *self.identities[broker.port], self.name), 3
            )

    def end(self, is_commit: bool) -> None:
        version = 5 if self.version >= ADDS_FROM else 3
        responses = self.until_ready(
            lambda broker: EndTxnRequest(self.name, *self.identities[broker.port], is_commit), version
        )
        self.pair.compare("offsets in transactions: end", version, responses, "producer_epoch")
        if version >= ADDS_FROM:
            self.learn(responses)

    def compare_when_ready(self, case: str, making: RequestFor) -> None:
        """The first commit of a transaction: Kafka may still be busy with the end of the one before."""
        while True:
            responses = self.pair.begin(making, self.version, "one").result()
            codes = {
                p.error_code for response in responses for topic in response.topics for p in topic.partitions
            }
            if not codes & NOT_YET:
                break
            self.pair.settle()
        self.pair.compare(f"offsets in transactions: {case}", self.version, responses)

    def commit(
        self,
        *offsets: tuple[int, int],
        topic: str | None = None,
        note: str = "note",
        epoch_change: int = 0,
        id_change: int = 0,
        **fields: Any,
    ) -> RequestFor:
        def make(broker: Broker) -> TxnOffsetCommitRequest:
            producer_id, epoch = self.identities[broker.port]
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

    def look(self, case: str) -> None:
        """Both ways to read what is committed."""
        topics = [OffsetFetchRequestTopics(self.topic, NO_ID, [0, 1, 2])]
        for require_stable in (True, False):
            for wanted in (topics, None):
                groups = [OffsetFetchRequestGroup(self.name, topics=wanted)]
                kind = "stable offsets" if require_stable else "offsets"
                whole = "all " if wanted is None else ""
                request = OffsetFetchRequest(groups=groups, require_stable=require_stable)
                self.check(f"{whole}{kind} {case}", request, 8)


def check_offsets_in_transactions(pair: BrokerPair) -> None:
    """Offsets that are committed, and such that are not, in every version."""
    topic = create(pair, new_topic("offsets-in-transactions"))
    for version in range(6):
        scenario = Scenario(pair, topic, version)
        scenario.begin()
        _be_refused(scenario)
        _commit_and_abort(scenario)
        _interleave(scenario)
        _forget(scenario)
        _be_members(scenario)
        _be_fenced(scenario)


def _be_refused(scenario: Scenario) -> None:
    version = scenario.version
    if version < ADDS_FROM:
        scenario.check("a group that was not added", scenario.commit((0, 1)), version)
    scenario.add()
    if version >= 3:
        # First: a commit without a generation creates a group in Kafka's memory, also when refused.
        by_generation = scenario.commit((0, 1), generation_id=1, member_id="a")
        scenario.compare_when_ready("a generation of an unknown group", by_generation)
        scenario.check("a member of an unknown group", scenario.commit((0, 1), member_id="a"), version)
    for case, making in (
        ("nothing", scenario.commit()),
        ("a topic that does not exist", scenario.commit((0, 1), topic="nowhere")),
        ("a partition that does not exist", scenario.commit((9, 1))),
        ("no group", scenario.commit((0, 1), group_id="")),
        ("an unknown transactional id", scenario.commit((0, 1), transactional_id="unknown")),
        ("another producer's id", scenario.commit((0, 1), id_change=1000)),
        ("a later epoch", scenario.commit((0, 1), epoch_change=1)),
        ("a long note", scenario.commit((0, 1), note="x" * 5000)),
    ):
        scenario.check(case, making, version)
    scenario.end(is_commit=False)


def _commit_and_abort(scenario: Scenario) -> None:
    for is_commit in (False, True, False):
        scenario.add()
        scenario.compare_when_ready("commit", scenario.commit((0, 5), (1, 6), (9, 7)))
        scenario.look("while the transaction is open")
        scenario.end(is_commit)
        _settle_end(scenario)
        scenario.look(f"after the transaction {'committed' if is_commit else 'aborted'}")


def _interleave(scenario: Scenario) -> None:
    """A plain commit after a transactional one, and before it."""
    for plain_first in (True, False):
        scenario.add()
        if plain_first:
            scenario.check("a plain commit before", _plain_commit(scenario, 70), 7)
        scenario.compare_when_ready("commit", scenario.commit((0, 80)))
        if not plain_first:
            scenario.check("a plain commit after", _plain_commit(scenario, 70), 7)
        scenario.look("with both kinds of commits")
        scenario.end(is_commit=True)
        _settle_end(scenario)
        scenario.look(f"with the {'transactional' if plain_first else 'plain'} commit last")


def _forget(scenario: Scenario) -> None:
    parts = [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(2)]
    delete = OffsetDeleteRequest(scenario.name, [OffsetDeleteRequestTopic(scenario.topic, parts)])
    scenario.add()
    scenario.compare_when_ready("commit", scenario.commit((0, 8), (2, 9)))
    scenario.check("delete offsets", delete, 0)
    scenario.look("after deletion, in the transaction")
    scenario.end(is_commit=True)
    _settle_end(scenario)
    scenario.look("after deletion")
    scenario.add()
    scenario.compare_when_ready("commit", scenario.commit((0, 8)))
    scenario.check("delete the group", DeleteGroupsRequest([scenario.name]), 2)
    scenario.look("after deletion of the group, in the transaction")
    scenario.end(is_commit=True)
    _settle_end(scenario)
    scenario.look("after deletion of the group")


def _be_members(scenario: Scenario) -> None:
    """A group with a member that has joined, and has no assignment yet."""
    join = JoinGroupRequest(scenario.name, 10_000, 10_000, "", None, "consumer")
    join.protocols = [JoinGroupRequestProtocol("range", b"\0\0\0\0\0\0\xff\xff\xff\xff")]
    joined = scenario.pair.begin(join, 3, "one").result()
    for broker, response in zip((scenario.pair.ours, scenario.pair.theirs), joined, strict=True):
        broker.member_ids[scenario.name] = response.member_id

    def of_member(offset: int, generation: int) -> RequestFor:
        def make(broker: Broker) -> Request:
            member_id = broker.member_ids[scenario.name]
            return scenario.commit((0, offset), generation_id=generation, member_id=member_id)(broker)

        return make

    scenario.add()
    scenario.compare_when_ready("without a member", scenario.commit((0, 11)))
    if scenario.version >= 3:
        scenario.check("a member", of_member(12, 1), scenario.version)
        scenario.check("a member of another generation", of_member(13, 7), scenario.version)
        scenario.check("a member without a generation", of_member(13, -1), scenario.version)
        scenario.check(
            "an unknown member", scenario.commit((0, 1), generation_id=1, member_id="a"), scenario.version
        )
        scenario.check(
            "an unknown instance",
            scenario.commit((0, 1), generation_id=1, member_id="a", group_instance_id="i"),
            scenario.version,
        )
    scenario.end(is_commit=True)
    _settle_end(scenario)
    scenario.look("of members")


def _be_fenced(scenario: Scenario) -> None:
    """A new producer takes over the transactional id while a transaction is open."""
    scenario.add()
    scenario.compare_when_ready("commit", scenario.commit((0, 99)))
    former = dict(scenario.identities)
    scenario.begin()
    heirs, scenario.identities = scenario.identities, former
    scenario.check("commit of one who is fenced", scenario.commit((0, 100)), scenario.version)
    scenario.identities = heirs
    _settle_end(scenario)
    scenario.look("after fencing")


def _settle_end(scenario: Scenario) -> None:
    """Kafka writes markers after it has acknowledged the end of a transaction."""
    topics = [OffsetFetchRequestTopics(scenario.topic, NO_ID, [0, 1, 2])]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(scenario.name, topics=topics)], require_stable=True
    )
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT.code
    while any(
        part.error_code == unstable
        for response in scenario.pair.begin(request, 8, "one").result()
        for part in response.groups[0].topics[0].partitions
    ):
        scenario.pair.settle()


def _plain_commit(scenario: Scenario, offset: int) -> OffsetCommitRequest:
    parts = [OffsetCommitRequestPartition(0, offset, -1, "plain")]
    return OffsetCommitRequest(
        scenario.name, -1, "", topics=[OffsetCommitRequestTopic(scenario.topic, NO_ID, parts)]
    )
