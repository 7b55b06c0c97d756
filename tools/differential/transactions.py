"""Cases of transactions: both versions of the protocol, in every request version, also of zombies."""

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
from tools.differential.comparison import Broker, BrokerPair, RequestFor
from tools.differential.topics import create, new_topic

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
class Scenario:
    """One transactional id on both brokers."""

    pair: BrokerPair
    topic: str
    name: str
    identities: dict[int, tuple[int, int]] = field(default_factory=dict)
    """A broker's port → producer id and epoch there."""
    sequences: dict[int, int] = field(default_factory=dict)

    def check(self, case: str, request: Request | RequestFor, version: int) -> tuple[Any, Any]:
        return self.pair.check(f"transactions: {case}", request, version, ignore=MOMENTS)

    def ready(self, request: Request | RequestFor, version: int) -> tuple[Any, Any]:
        """Send until both brokers have completed what came before."""
        while True:
            responses = self.pair.begin(request, version, "one").result()
            if not any(response.error_code in BUSY for response in responses):
                return responses
            self.pair.settle()

    def begin(self) -> None:
        """Initialise the producer id."""
        self.ready(FindCoordinatorRequest(self.name, TRANSACTIONS_TYPE), 3)
        self.learn(self.ready(InitProducerIdRequest(self.name, 60_000), 4))

    def learn(self, responses: tuple[Any, Any]) -> None:
        for broker, response in zip((self.pair.ours, self.pair.theirs), responses, strict=True):
            self.identities[broker.port] = response.producer_id, response.producer_epoch
            self.sequences[broker.port] = 0

    def as_it_is(self, make: Callable[[int, int], Request], ids: int = 0, epochs: int = 0) -> RequestFor:
        """A request with the current epoch, or one that is off by so much."""

        def making(broker: Broker) -> Request:
            producer_id, epoch = self.identities[broker.port]
            return make(producer_id + ids, epoch + epochs)

        return making

    def add(
        self, version: int, *partitions: int, topic: str = "", name: str = "", **beside: int
    ) -> RequestFor:
        topics = [AddPartitionsToTxnTopic(topic or self.topic, list(partitions))]
        named = name or self.name

        def make(producer_id: int, epoch: int) -> Request:
            if version >= 4:
                transaction = AddPartitionsToTxnTransaction(named, producer_id, epoch, False, topics)
                return AddPartitionsToTxnRequest([transaction])
            return AddPartitionsToTxnRequest([], named, producer_id, epoch, topics)

        return self.as_it_is(make, **beside)

    def verify(self, *partitions: int, name: str = "", **beside: int) -> RequestFor:
        topics = [AddPartitionsToTxnTopic(self.topic, list(partitions))]
        return self.as_it_is(
            lambda producer_id, epoch: AddPartitionsToTxnRequest(
                [AddPartitionsToTxnTransaction(name or self.name, producer_id, epoch, True, topics)]
            ),
            **beside,
        )

    def end(self, is_commit: bool, name: str | None = None, **beside: int) -> RequestFor:
        named = self.name if name is None else name
        return self.as_it_is(
            lambda producer_id, epoch: EndTxnRequest(named, producer_id, epoch, is_commit), **beside
        )

    def init(self, timeout_ms: int = 60_000, **beside: int) -> RequestFor:
        return self.as_it_is(
            lambda producer_id, epoch: InitProducerIdRequest(self.name, timeout_ms, producer_id, epoch),
            **beside,
        )

    def produce(self, partition: int, sequence: int = 0, name: str = "", **beside: int) -> RequestFor:
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

    def look(self, case: str) -> None:
        """Compare the state of the transaction once the markers are written."""
        request = DescribeTransactionsRequest([self.name])
        while True:
            responses = self.pair.begin(request, 0, "one").result()
            states = [response.transaction_states[0].transaction_state for response in responses]
            if not any(state.startswith("Prepare") for state in states):
                break
            self.pair.settle()
        self.check(f"describe {case}", request, 0)


def check_transactions(pair: BrokerPair) -> None:
    """Every request, by the current producer and by others, in every state."""
    topic = create(pair, new_topic("transactions", 3))
    # Kafka may still be creating the topic of its coordinators, and a repeated request has another epoch.
    Scenario(pair, topic, "warm-up").begin()
    for version in range(6):
        _check_one_era(Scenario(pair, topic, f"era-{version}"), version)
    _check_new_protocol(Scenario(pair, topic, "new"))
    _check_identities(Scenario(pair, topic, "identities"))
    _check_takeover(Scenario(pair, topic, "takeover"))
    _check_produce(Scenario(pair, topic, "produce"))
    _check_markers(Scenario(pair, topic, "markers"))
    _check_lists(pair)


def _check_one_era(scenario: Scenario, version: int) -> None:
    """Requests of one generation of clients, valid and not."""
    scenario.begin()
    scenario.look("an id that was just taken")
    offsets_version = min(version, 4)
    for is_commit in (True, False):
        scenario.check("end nothing", scenario.end(is_commit, epochs=-1), version)
        scenario.check("end for an unknown id", scenario.end(is_commit, "unknown"), version)
        scenario.check("end without an id", scenario.end(is_commit, ""), version)
        scenario.check("end another producer's", scenario.end(is_commit, ids=1000), version)
        scenario.check("end a later epoch", scenario.end(is_commit, epochs=1), version)
    scenario.check("add a partition that does not exist", scenario.add(version, 0, 9), version)
    scenario.check("add a topic that does not exist", scenario.add(version, 0, topic="nowhere"), version)
    scenario.check("add to an unknown id", scenario.add(version, 0, name="unknown"), version)
    scenario.check("add to another producer's", scenario.add(version, 0, ids=1000), version)
    scenario.check("add to a later epoch", scenario.add(version, 0, epochs=1), version)
    for case, make in (
        ("offsets", lambda a, b: AddOffsetsToTxnRequest(scenario.name, a, b, "a group")),
        ("offsets of an unknown id", lambda a, b: AddOffsetsToTxnRequest("unknown", a, b, "a group")),
        ("offsets of a later epoch", lambda a, b: AddOffsetsToTxnRequest(scenario.name, a, b + 1, "a group")),
    ):
        scenario.check(f"add {case}", scenario.as_it_is(make), offsets_version)
    scenario.check("add", scenario.add(version, 0, 1), version)
    scenario.check("add again", scenario.add(version, 0), version)
    scenario.look("an open transaction")
    responses = scenario.check("commit", scenario.end(True), version)
    scenario.look("a committed transaction")
    if version < NEW:
        scenario.check("commit again", scenario.end(True), version)
        scenario.check("abort what is committed", scenario.end(False), version)
        scenario.check("add to the next", scenario.add(version, 0), version)
        scenario.check("abort", scenario.end(False), version)
        scenario.look("an aborted transaction")
        scenario.check("abort again", scenario.end(False), version)
        scenario.check("commit what is aborted", scenario.end(True), version)
    else:
        scenario.learn(responses)
        scenario.look("the next one")


def _check_new_protocol(scenario: Scenario) -> None:
    """EndTxn of the newer protocol, first and repeated, in every state."""
    scenario.begin()
    for state in ("empty", "committed", "aborted"):
        scenario.check(f"commit nothing, {state}", scenario.end(True), NEW)
        scenario.check(f"repeat a commit, {state}", scenario.end(True, epochs=-1), NEW)
        scenario.check(f"repeat an abort, {state}", scenario.end(False, epochs=-1), NEW)
        scenario.check(f"an older commit, {state}", scenario.end(True, epochs=-2), NEW)
        scenario.learn(scenario.check(f"abort nothing, {state}", scenario.end(False), NEW))
        scenario.look(f"after an abort of nothing, {state}")
        scenario.check(f"repeat the abort of nothing, {state}", scenario.end(False, epochs=-1), NEW)
        scenario.check(f"commit the abort of nothing, {state}", scenario.end(True, epochs=-1), NEW)
        scenario.pair.begin(scenario.produce(0), NEW_PRODUCE, "one").result()
        scenario.look(f"an open transaction of the newer protocol, {state}")
        scenario.check(f"repeat while open, {state}", scenario.end(True, epochs=-1), NEW)
        scenario.check(f"abort of the one before while open, {state}", scenario.end(False, epochs=-1), NEW)
        scenario.check(f"a later epoch while open, {state}", scenario.end(False, epochs=1), NEW)
        scenario.learn(scenario.check(f"end, {state}", scenario.end(state == "empty"), NEW))
        scenario.look(f"after the end, {state}")


def _check_identities(scenario: Scenario) -> None:
    """InitProducerId with a producer id and epoch."""
    scenario.begin()
    for version in (3, 4, 5):
        scenario.check("init of a later epoch", scenario.init(epochs=1), version)
        scenario.check("init of another producer", scenario.init(ids=1000), version)
        scenario.check("init with too long a time", scenario.init(timeout_ms=2**31 - 1), version)
        scenario.check("init without time", scenario.init(timeout_ms=0), version)
        responses = scenario.check("init of the holder", scenario.init(), version)
        scenario.check("init of the holder again", scenario.init(), version)
        scenario.learn(responses)
        scenario.check("init of one from long ago", scenario.init(epochs=-2), version)
        scenario.look("after its holder came again")
    responses = scenario.check("init of a new id", InitProducerIdRequest(scenario.name, 30_000), 4)
    scenario.check("init of the one before", scenario.init(), 4)
    scenario.learn(responses)
    # After the end of a transaction the epoch before it may still be shown.
    scenario.pair.begin(scenario.produce(0), NEW_PRODUCE, "one").result()
    scenario.check("commit before init", scenario.end(True), NEW)
    scenario.look("a commit before init")
    scenario.learn(scenario.check("init with the epoch before the commit", scenario.init(), 5))
    scenario.look("an init after the commit")


def _check_takeover(scenario: Scenario) -> None:
    """Another producer takes over the id while a transaction is open."""
    scenario.begin()
    for _ in range(2):
        scenario.pair.begin(scenario.produce(1), NEW_PRODUCE, "one").result()
        scenario.check("init of another while open", scenario.init(ids=1000), 5)
        scenario.check("take over while open", InitProducerIdRequest(scenario.name, 60_000), 5)
        scenario.look("what was taken over")
        scenario.check("commit by the zombie", scenario.end(True), NEW)
        scenario.check("classic commit by the zombie", scenario.end(True), 4)
        scenario.check("abort by the zombie", scenario.end(False), NEW)
        scenario.check("add by the zombie", scenario.add(3, 0), 3)
        scenario.check("init of the zombie", scenario.init(ids=1000), 5)
        scenario.learn(scenario.ready(InitProducerIdRequest(scenario.name, 60_000), 5))
        scenario.look("the new holder")
        scenario.check("commit by the former zombie", scenario.end(True, epochs=-2), NEW)
        scenario.check("init of the former zombie", scenario.init(epochs=-2), 5)


def _check_produce(scenario: Scenario) -> None:
    """Transactional writes to partitions of the transaction, and to others."""
    scenario.begin()
    for version in (CLASSIC_PRODUCE, NEW_PRODUCE):
        scenario.check("produce for an unknown id", scenario.produce(0, name="unknown"), version)
        scenario.check("produce for another producer", scenario.produce(0, ids=1000), version)
        scenario.check("produce at a later epoch", scenario.produce(0, epochs=1), version)
    scenario.check("produce to what was not added", scenario.produce(0), CLASSIC_PRODUCE)
    scenario.check("verify what was not added", scenario.verify(0, 1), 5)
    scenario.check("add before produce", scenario.add(3, 0), 3)
    scenario.check("verify", scenario.verify(0, 1), 5)
    scenario.check("verify for an unknown id", scenario.verify(0, name="unknown"), 5)
    scenario.check("verify at a later epoch", scenario.verify(0, epochs=1), 5)
    scenario.check("produce", scenario.produce(0), CLASSIC_PRODUCE)
    scenario.check("produce again", scenario.produce(0), CLASSIC_PRODUCE)
    scenario.check("produce the next", scenario.produce(0, sequence=1), CLASSIC_PRODUCE)
    scenario.check("end what was produced", scenario.end(True), 3)
    scenario.look("what was produced")
    scenario.check("produce behind the end", scenario.produce(0, sequence=2), CLASSIC_PRODUCE)
    scenario.check("produce again behind the end", scenario.produce(0, sequence=1), CLASSIC_PRODUCE)
    scenario.check("produce and add", scenario.produce(2), NEW_PRODUCE)
    scenario.learn(scenario.check("end what was added", scenario.end(False), NEW))
    scenario.look("what was added and aborted")
    for version in (CLASSIC_PRODUCE, NEW_PRODUCE):
        scenario.check("produce of the one before", scenario.produce(2, sequence=1, epochs=-1), version)
        scenario.check("produce elsewhere of the one before", scenario.produce(1, epochs=-1), version)


def _check_markers(scenario: Scenario) -> None:
    """WriteTxnMarkers, valid and not."""
    scenario.begin()
    scenario.begin()

    def marker(
        coordinator_epoch: int, level: int, *partitions: int, topic: str = "", **beside: int
    ) -> RequestFor:
        topics = [WritableTxnMarkerTopic(topic or scenario.topic, list(partitions))]
        return scenario.as_it_is(
            lambda producer_id, epoch: WriteTxnMarkersRequest(
                [WritableTxnMarker(producer_id, epoch, False, topics, coordinator_epoch, level)]
            ),
            **beside,
        )

    scenario.pair.begin(scenario.produce(0), NEW_PRODUCE, "one").result()
    for version in (1, 2):
        scenario.check("no markers", WriteTxnMarkersRequest([]), version)
        scenario.check("a marker where nothing is", marker(5, 0, 0, topic="nowhere"), version)
        scenario.check("a marker beside the partitions", marker(5, 0, 9), version)
    scenario.check("a marker of an older epoch", marker(5, 0, 0, epochs=-1), 2)
    scenario.check("a marker of the new protocol at the same epoch", marker(5, 2, 0), 2)
    scenario.check("a marker", marker(5, 0, 0), 2)
    scenario.check("the marker again", marker(5, 0, 0), 2)
    scenario.check("the marker again, of the new protocol", marker(5, 2, 0), 2)
    scenario.check("a marker of an older coordinator", marker(4, 0, 0), 2)
    scenario.check("a marker of a later epoch", marker(5, 2, 0, epochs=1), 2)
    scenario.check("a marker of the epoch before", marker(5, 0, 0), 2)
    scenario.check("a marker for a producer that was never there", marker(5, 0, 1, ids=5000), 2)


def _check_lists(pair: BrokerPair) -> None:
    for case, request, version in (
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
        pair.check(f"transactions: list {case}", request, version)
    ids = ["era-0", "unknown", "", "new"]
    pair.check("transactions: describe many", DescribeTransactionsRequest(ids), 0, ignore=MOMENTS)
