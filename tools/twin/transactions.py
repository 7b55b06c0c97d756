"""Questions about transactions: the classic protocol and the newer one, in every version, also of zombies."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from runnel.batch.build import build_batch
from runnel.batch.records import Record
from runnel.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from runnel.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from runnel.messages.describe_transactions import DescribeTransactionsRequest
from runnel.messages.end_txn import EndTxnRequest
from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.init_producer_id import InitProducerIdRequest
from runnel.messages.list_transactions import ListTransactionsRequest
from runnel.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from runnel.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from runnel.model.errors import ErrorCode
from runnel.wire import Request
from tools.twin.comparison import Making, Twin, Twins
from tools.twin.topics import create, new_topic

TRANSACTIONS_TYPE = 1
NEW = 5
"""Since this version of EndTxn each transaction has an epoch of its own."""
CLASSIC_PRODUCE, NEW_PRODUCE = 11, 12
BUSY = {
    ErrorCode.CONCURRENT_TRANSACTIONS.code,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code,
    ErrorCode.COORDINATOR_NOT_AVAILABLE.code,
    ErrorCode.NOT_COORDINATOR.code,
}
MOMENTS = "transaction_start_time_ms"


@dataclass(slots=True)
class Story:
    """One transactional id on both brokers."""

    twins: Twins
    topic: str
    name: str
    identities: dict[int, tuple[int, int]] = field(default_factory=dict)
    """A broker's port → producer id and epoch there."""
    sequences: dict[int, int] = field(default_factory=dict)

    def ask(self, question: str, request: Request | Making, version: int) -> tuple[Any, Any]:
        return self.twins.ask(f"transactions: {question}", request, version, ignore=MOMENTS)

    def ready(self, request: Request | Making, version: int) -> tuple[Any, Any]:
        """Ask until both brokers are done with what came before."""
        while True:
            answers = self.twins.begin(request, version, "one").result()
            if not any(answer.error_code in BUSY for answer in answers):
                return answers
            self.twins.settle()

    def begin(self) -> None:
        """Take the id."""
        self.ready(FindCoordinatorRequest(self.name, TRANSACTIONS_TYPE), 3)
        self.learn(self.ready(InitProducerIdRequest(self.name, 60_000), 4))

    def learn(self, answers: tuple[Any, Any]) -> None:
        for twin, answer in zip((self.twins.ours, self.twins.theirs), answers, strict=True):
            self.identities[twin.port] = answer.producer_id, answer.producer_epoch
            self.sequences[twin.port] = 0

    def as_it_is(self, make: Callable[[int, int], Request], ids: int = 0, epochs: int = 0) -> Making:
        """A request of the holder, or of one who is so far beside it."""

        def making(twin: Twin) -> Request:
            producer_id, epoch = self.identities[twin.port]
            return make(producer_id + ids, epoch + epochs)

        return making

    def add(self, version: int, *partitions: int, topic: str = "", name: str = "", **beside: int) -> Making:
        topics = [AddPartitionsToTxnTopic(topic or self.topic, list(partitions))]
        named = name or self.name

        def make(producer_id: int, epoch: int) -> Request:
            if version >= 4:
                transaction = AddPartitionsToTxnTransaction(named, producer_id, epoch, False, topics)
                return AddPartitionsToTxnRequest([transaction])
            return AddPartitionsToTxnRequest([], named, producer_id, epoch, topics)

        return self.as_it_is(make, **beside)

    def verify(self, *partitions: int, name: str = "", **beside: int) -> Making:
        topics = [AddPartitionsToTxnTopic(self.topic, list(partitions))]
        return self.as_it_is(
            lambda producer_id, epoch: AddPartitionsToTxnRequest(
                [AddPartitionsToTxnTransaction(name or self.name, producer_id, epoch, True, topics)]
            ),
            **beside,
        )

    def end(self, is_commit: bool, name: str | None = None, **beside: int) -> Making:
        named = self.name if name is None else name
        return self.as_it_is(
            lambda producer_id, epoch: EndTxnRequest(named, producer_id, epoch, is_commit), **beside
        )

    def init(self, timeout_ms: int = 60_000, **beside: int) -> Making:
        return self.as_it_is(
            lambda producer_id, epoch: InitProducerIdRequest(self.name, timeout_ms, producer_id, epoch),
            **beside,
        )

    def produce(self, partition: int, sequence: int = 0, name: str = "", **beside: int) -> Making:
        def make(producer_id: int, epoch: int) -> Request:
            records = build_batch(
                [Record(0, 1_700_000_000_000, None, b"value")],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=True,
            )
            data = [PartitionProduceData(partition, bytes(records))]
            topics = [TopicProduceData(name=self.topic, partition_data=data)]
            return ProduceRequest(name or self.name, -1, 10_000, topics)

        return self.as_it_is(make, **beside)

    def look(self, question: str) -> None:
        """Compare where the transaction stands, once the markers are written."""
        request = DescribeTransactionsRequest([self.name])
        while True:
            answers = self.twins.begin(request, 0, "one").result()
            states = [answer.transaction_states[0].transaction_state for answer in answers]
            if not any(state.startswith("Prepare") for state in states):
                break
            self.twins.settle()
        self.ask(f"describe {question}", request, 0)


def ask_transactions(twins: Twins) -> None:
    """Every request, by its holder and by others, in every state."""
    topic = create(twins, new_topic("transactions", 3))
    # Kafka may still be making the topic of its coordinators, and whoever asks twice is at another epoch.
    Story(twins, topic, "warm-up").begin()
    for version in range(6):
        _ask_one_era(Story(twins, topic, f"era-{version}"), version)
    _ask_new_protocol(Story(twins, topic, "new"))
    _ask_identities(Story(twins, topic, "identities"))
    _ask_takeover(Story(twins, topic, "takeover"))
    _ask_produce(Story(twins, topic, "produce"))
    _ask_markers(Story(twins, topic, "markers"))
    _ask_lists(twins)


def _ask_one_era(story: Story, version: int) -> None:
    """What a client of one time says, right and wrong."""
    story.begin()
    story.look("an id that was just taken")
    offsets_version = min(version, 4)
    for is_commit in (True, False):
        story.ask("end nothing", story.end(is_commit, epochs=-1), version)
        story.ask("end for an unknown id", story.end(is_commit, "unknown"), version)
        story.ask("end without an id", story.end(is_commit, ""), version)
        story.ask("end another producer's", story.end(is_commit, ids=1000), version)
        story.ask("end a later epoch", story.end(is_commit, epochs=1), version)
    story.ask("add a partition that is not there", story.add(version, 0, 9), version)
    story.ask("add a topic that is not there", story.add(version, 0, topic="nowhere"), version)
    story.ask("add to an unknown id", story.add(version, 0, name="unknown"), version)
    story.ask("add to another producer's", story.add(version, 0, ids=1000), version)
    story.ask("add to a later epoch", story.add(version, 0, epochs=1), version)
    for question, make in (
        ("offsets", lambda a, b: AddOffsetsToTxnRequest(story.name, a, b, "a group")),
        ("offsets of an unknown id", lambda a, b: AddOffsetsToTxnRequest("unknown", a, b, "a group")),
        ("offsets of a later epoch", lambda a, b: AddOffsetsToTxnRequest(story.name, a, b + 1, "a group")),
    ):
        story.ask(f"add {question}", story.as_it_is(make), offsets_version)
    story.ask("add", story.add(version, 0, 1), version)
    story.ask("add again", story.add(version, 0), version)
    story.look("an open transaction")
    answers = story.ask("commit", story.end(True), version)
    story.look("a committed transaction")
    if version < NEW:
        story.ask("commit again", story.end(True), version)
        story.ask("abort what is committed", story.end(False), version)
        story.ask("add to the next", story.add(version, 0), version)
        story.ask("abort", story.end(False), version)
        story.look("an aborted transaction")
        story.ask("abort again", story.end(False), version)
        story.ask("commit what is aborted", story.end(True), version)
    else:
        story.learn(answers)
        story.look("the next one")


def _ask_new_protocol(story: Story) -> None:
    """Ends of the newer protocol by holders and by repeats, in every state."""
    story.begin()
    for state in ("empty", "committed", "aborted"):
        story.ask(f"commit nothing, {state}", story.end(True), NEW)
        story.ask(f"repeat a commit, {state}", story.end(True, epochs=-1), NEW)
        story.ask(f"repeat an abort, {state}", story.end(False, epochs=-1), NEW)
        story.ask(f"an older commit, {state}", story.end(True, epochs=-2), NEW)
        story.learn(story.ask(f"abort nothing, {state}", story.end(False), NEW))
        story.look(f"after an abort of nothing, {state}")
        story.ask(f"repeat the abort of nothing, {state}", story.end(False, epochs=-1), NEW)
        story.ask(f"commit the abort of nothing, {state}", story.end(True, epochs=-1), NEW)
        story.twins.begin(story.produce(0), NEW_PRODUCE, "one").result()
        story.look(f"an open transaction of the newer protocol, {state}")
        story.ask(f"repeat while open, {state}", story.end(True, epochs=-1), NEW)
        story.ask(f"abort of the one before while open, {state}", story.end(False, epochs=-1), NEW)
        story.ask(f"a later epoch while open, {state}", story.end(False, epochs=1), NEW)
        story.learn(story.ask(f"end, {state}", story.end(state == "empty"), NEW))
        story.look(f"after the end, {state}")


def _ask_identities(story: Story) -> None:
    """InitProducerId by who shows what it has."""
    story.begin()
    for version in (3, 4, 5):
        story.ask("init of a later epoch", story.init(epochs=1), version)
        story.ask("init of another producer", story.init(ids=1000), version)
        story.ask("init with too long a time", story.init(timeout_ms=2**31 - 1), version)
        story.ask("init without time", story.init(timeout_ms=0), version)
        answers = story.ask("init of the holder", story.init(), version)
        story.ask("init of the holder again", story.init(), version)
        story.learn(answers)
        story.ask("init of one from long ago", story.init(epochs=-2), version)
        story.look("after its holder came again")
    answers = story.ask("init of somebody", InitProducerIdRequest(story.name, 30_000), 4)
    story.ask("init of the one before", story.init(), 4)
    story.learn(answers)
    # After the end of a transaction the epoch before it may still be shown.
    story.twins.begin(story.produce(0), NEW_PRODUCE, "one").result()
    story.ask("commit before init", story.end(True), NEW)
    story.look("a commit before init")
    story.learn(story.ask("init with the epoch before the commit", story.init(), 5))
    story.look("an init after the commit")


def _ask_takeover(story: Story) -> None:
    """Somebody takes the id while a transaction is open."""
    story.begin()
    for _ in range(2):
        story.twins.begin(story.produce(1), NEW_PRODUCE, "one").result()
        story.ask("init of another while open", story.init(ids=1000), 5)
        story.ask("take over while open", InitProducerIdRequest(story.name, 60_000), 5)
        story.look("what was taken over")
        story.ask("commit by the zombie", story.end(True), NEW)
        story.ask("classic commit by the zombie", story.end(True), 4)
        story.ask("abort by the zombie", story.end(False), NEW)
        story.ask("add by the zombie", story.add(3, 0), 3)
        story.ask("init of the zombie", story.init(ids=1000), 5)
        story.learn(story.ready(InitProducerIdRequest(story.name, 60_000), 5))
        story.look("the new holder")
        story.ask("commit by the former zombie", story.end(True, epochs=-2), NEW)
        story.ask("init of the former zombie", story.init(epochs=-2), 5)


def _ask_produce(story: Story) -> None:
    """Transactional writes where they belong, and where not."""
    story.begin()
    for version in (CLASSIC_PRODUCE, NEW_PRODUCE):
        story.ask("produce for an unknown id", story.produce(0, name="unknown"), version)
        story.ask("produce for another producer", story.produce(0, ids=1000), version)
        story.ask("produce at a later epoch", story.produce(0, epochs=1), version)
    story.ask("produce to what was not added", story.produce(0), CLASSIC_PRODUCE)
    story.ask("verify what was not added", story.verify(0, 1), 5)
    story.ask("add before produce", story.add(3, 0), 3)
    story.ask("verify", story.verify(0, 1), 5)
    story.ask("verify for an unknown id", story.verify(0, name="unknown"), 5)
    story.ask("verify at a later epoch", story.verify(0, epochs=1), 5)
    story.ask("produce", story.produce(0), CLASSIC_PRODUCE)
    story.ask("produce again", story.produce(0), CLASSIC_PRODUCE)
    story.ask("produce the next", story.produce(0, sequence=1), CLASSIC_PRODUCE)
    story.ask("end what was produced", story.end(True), 3)
    story.look("what was produced")
    story.ask("produce behind the end", story.produce(0, sequence=2), CLASSIC_PRODUCE)
    story.ask("produce again behind the end", story.produce(0, sequence=1), CLASSIC_PRODUCE)
    story.ask("produce and add", story.produce(2), NEW_PRODUCE)
    story.learn(story.ask("end what was added", story.end(False), NEW))
    story.look("what was added and aborted")
    for version in (CLASSIC_PRODUCE, NEW_PRODUCE):
        story.ask("produce of the one before", story.produce(2, sequence=1, epochs=-1), version)
        story.ask("produce elsewhere of the one before", story.produce(1, epochs=-1), version)


def _ask_markers(story: Story) -> None:
    """Markers by hand, right and wrong."""
    story.begin()
    story.begin()

    def marker(
        coordinator_epoch: int, level: int, *partitions: int, topic: str = "", **beside: int
    ) -> Making:
        topics = [WritableTxnMarkerTopic(topic or story.topic, list(partitions))]
        return story.as_it_is(
            lambda producer_id, epoch: WriteTxnMarkersRequest(
                [WritableTxnMarker(producer_id, epoch, False, topics, coordinator_epoch, level)]
            ),
            **beside,
        )

    story.twins.begin(story.produce(0), NEW_PRODUCE, "one").result()
    for version in (1, 2):
        story.ask("no markers", WriteTxnMarkersRequest([]), version)
        story.ask("a marker where nothing is", marker(5, 0, 0, topic="nowhere"), version)
        story.ask("a marker beside the partitions", marker(5, 0, 9), version)
    story.ask("a marker of an older epoch", marker(5, 0, 0, epochs=-1), 2)
    story.ask("a marker of the new protocol at the same epoch", marker(5, 2, 0), 2)
    story.ask("a marker", marker(5, 0, 0), 2)
    story.ask("the marker again", marker(5, 0, 0), 2)
    story.ask("the marker again, of the new protocol", marker(5, 2, 0), 2)
    story.ask("a marker of an older coordinator", marker(4, 0, 0), 2)
    story.ask("a marker of a later epoch", marker(5, 2, 0, epochs=1), 2)
    story.ask("a marker of the epoch before", marker(5, 0, 0), 2)
    story.ask("a marker for a producer that was never there", marker(5, 0, 1, ids=5000), 2)


def _ask_lists(twins: Twins) -> None:
    for question, request, version in (
        ("all", ListTransactionsRequest(), 0),
        ("by state", ListTransactionsRequest(state_filters=["CompleteCommit", "Empty"]), 1),
        ("by an unknown state", ListTransactionsRequest(state_filters=["Lost", "Ongoing"]), 1),
        ("by unknown producers", ListTransactionsRequest(producer_id_filters=[987654]), 1),
        ("by age", ListTransactionsRequest(duration_filter=0), 1),
        ("by great age", ListTransactionsRequest(duration_filter=10_000_000), 1),
        ("by pattern", ListTransactionsRequest(transactional_id_pattern="era-[0-3]"), 2),
        ("by no pattern", ListTransactionsRequest(transactional_id_pattern=""), 2),
        ("by half a pattern", ListTransactionsRequest(transactional_id_pattern="era-"), 2),
        ("by a broken pattern", ListTransactionsRequest(transactional_id_pattern="("), 2),
    ):
        twins.ask(f"transactions: list {question}", request, version)
    ids = ["era-0", "nobody", "", "new"]
    twins.ask("transactions: describe many", DescribeTransactionsRequest(ids), 0, ignore=MOMENTS)
