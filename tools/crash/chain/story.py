"""A chain of workers between two topics, everybody killed at random, and the reckoning at the end."""

import asyncio
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from runnel.client import Cluster
from runnel.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tools.broker_process import BrokerProcess
from tools.crash.chain.book import Book, Log, read_journals
from tools.crash.chain.crew import INPUT, OUTPUT, Hand, JavaHand, PythonHand, Scene
from tools.crash.chain.feed import PlainFeeder, TransactionalFeeder, Watcher, whole_log
from tools.crash.chain.transact import TRANSACTION_TIMEOUT_MS
from tools.crash.chain.worker import SESSION_TIMEOUT_MS
from tools.crash.ledger import Place
from tools.crash.story import Note, kill, silent

PATIENCE_S = 90.0
INPUT_PARTITIONS = 3
OUTPUT_PARTITIONS = 4
OFFSETS_PARTITIONS = 4
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    # Segments roll in the middle of transactions.
    "log.roll.ms": "3000",
}
AT_REST = {"Empty", "CompleteCommit", "CompleteAbort", "Dead"}


@dataclass(slots=True)
class ChainOutcome:
    """How a chain ended."""

    broker_kills: int = 0
    worker_kills: int = 0
    pauses: int = 0
    inputs: int = 0
    outputs: int = 0
    attempts: int = 0
    aborted: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return self.broker_kills + self.worker_kills


class Chain:
    """Everybody who takes part in one story."""

    def __init__(self, broker: BrokerProcess, scene: Scene, hands: list[Hand], note: Note) -> None:
        self.broker = broker
        self.scene = scene
        self.hands = hands
        self.note = note
        self.book = Book()
        self.outcome = ChainOutcome(violations=self.book.violations)
        self.chance = random.Random(scene.seed)
        self.inputs: list[Place] = [(INPUT, number) for number in range(INPUT_PARTITIONS)]
        self.outputs: list[Place] = [(OUTPUT, number) for number in range(OUTPUT_PARTITIONS)]
        make_topics(scene.bootstrap)
        self.plain = PlainFeeder("p", scene.bootstrap, INPUT, scene.seed, self.book)
        self.transactional = TransactionalFeeder("t", scene.bootstrap, INPUT, scene.seed, scene.journals)
        self.watcher = Watcher(scene.bootstrap, self.outputs, self.book)

    def play(self, kills: int) -> None:
        """Load, kills, rest."""
        for thread in (self.plain, self.transactional, self.watcher):
            thread.start()
        self.revive()
        self.wait_for_output(1)
        while self.outcome.kills < kills and not self.book.violations:
            self.wait(self.chance.uniform(0.05, 1.0))
            if self.chance.random() < 0.4:
                self.wait_for_output(self.watcher.shown + 1)
            self.strike()
            self.note(
                f"kill {self.outcome.kills}/{kills}: {self.plain.sent + self.transactional.sent} sent, "
                f"{self.watcher.shown} copied and read"
            )
        self.plain.end()
        self.transactional.end()
        if not self.book.violations:
            self.come_to_rest()

    def strike(self) -> None:
        """Kill the broker, a worker, or both; now and then make a zombie of a worker instead."""
        luck = self.chance.random()
        if luck < 0.08:
            self.outcome.pauses += 1
            self.chance.choice(self.hands).hold(SESSION_TIMEOUT_MS / 1000 + self.chance.uniform(0.2, 1.5))
            return
        if luck < 0.65:
            self.outcome.worker_kills += 1
            self.chance.choice(self.hands).kill()
        if luck > 0.55:
            self.outcome.broker_kills += 1
            kill(self.broker, self.chance)
            self.broker.start()
        self.revive()

    def revive(self) -> None:
        for hand in self.hands:
            hand.revive()

    def wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.revive()
            time.sleep(0.05)

    def wait_for_output(self, count: int) -> bool:
        deadline = time.monotonic() + PATIENCE_S
        while self.watcher.shown < count:
            if time.monotonic() > deadline:
                self.book.accuse(f"stuck: {self.watcher.shown} records copied of at least {count}")
                return False
            self.revive()
            time.sleep(0.02)
        return True

    def come_to_rest(self) -> None:
        """All input arrives, workers leave, and nothing stays open."""
        bootstrap = self.scene.bootstrap
        self.note("no more kills: the rest is copied")
        wait_until_closed(bootstrap, self.inputs, self.book)
        inputs = whole_log(bootstrap, self.inputs, "read_committed")
        if not self.wait_for_output(sum(map(len, inputs.values()))):
            return
        # Anything that is shown in spite of its doubles would come now.
        self.wait(1.0)
        for hand in self.hands:
            if not hand.end():
                self.book.accuse(f"worker {hand.number} did not end when asked to")
        offsets: list[Place] = [("__consumer_offsets", number) for number in range(OFFSETS_PARTITIONS)]
        wait_until_closed(bootstrap, [*self.inputs, *self.outputs, *offsets], self.book)
        self.watcher.end()
        self.judge(inputs)
        if self.broker.stop() != 0:
            self.book.accuse("a clean stop ended with an error")
        self.broker.start()
        self.judge(inputs)
        wait_until_closed(bootstrap, [*self.inputs, *self.outputs, *offsets], self.book)

    def judge(self, inputs: Log) -> None:
        book, bootstrap = self.book, self.scene.bootstrap
        book.attempts = read_journals(self.scene.journals)
        if whole_log(bootstrap, self.inputs, "read_committed") != inputs:
            book.accuse("the committed input is no longer what it was")
        outputs = whole_log(bootstrap, self.outputs, "read_committed")
        everything = whole_log(bootstrap, self.outputs, "read_uncommitted")
        book.judge_transactions(inputs, "the input")
        book.judge_transactions(outputs, "the output")
        book.judge_commits(inputs, b"t")
        book.judge_commits(outputs, b"w")
        book.judge_acknowledged(self.plain.acknowledged, inputs)
        book.judge_copies(inputs, outputs)
        book.judge_seen(self.watcher.seen, outputs)
        for place, records in outputs.items():
            if set(records) - set(everything[place]):
                book.accuse(f"{place}: committed records that readers of everything are not shown")
        self.outcome.inputs = sum(map(len, inputs.values()))
        self.outcome.outputs = sum(map(len, outputs.values()))
        self.outcome.aborted = sum(map(len, everything.values())) - self.outcome.outputs
        self.outcome.attempts = len(book.attempts)

    def close(self) -> None:
        for hand in self.hands:
            hand.close()
        for thread in (self.plain, self.transactional, self.watcher):
            if thread.is_alive():
                thread.end()


def chain(
    folder: Path,
    kills: int,
    seed: int = 1,
    policy: str = "commit",
    crew: str = "python",
    protocol: str = "classic",
    note: Note = silent,
) -> ChainOutcome:
    """Play one chain from an empty broker to its reckoning."""
    began = time.monotonic()
    broker = BrokerProcess(folder / "data", {**SETTINGS, "log.flush.policy": policy}, folder / "broker.log")
    try:
        broker.start()
        scene = Scene(broker.bootstrap, folder, seed, protocol)
        kind = PythonHand if crew == "python" else JavaHand
        story = Chain(broker, scene, [kind(number, scene) for number in range(INPUT_PARTITIONS)], note)
        try:
            story.play(kills)
        finally:
            story.close()
    finally:
        broker.kill()
    story.outcome.seconds = time.monotonic() - began
    return story.outcome


def make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    sizes = {INPUT: INPUT_PARTITIONS, OUTPUT: OUTPUT_PARTITIONS}
    for future in admin.create_topics([NewTopic(name, size, 1) for name, size in sizes.items()]).values():
        future.result(PATIENCE_S)


def wait_until_closed(bootstrap: str, places: list[Place], book: Book) -> None:
    """Every transaction has ended, by itself or by its timeout: all that is written is stable."""
    deadline = time.monotonic() + 3 * TRANSACTION_TIMEOUT_MS / 1000 + 10
    while True:
        committed, everything = (
            ends(bootstrap, places, isolation)
            for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        )
        open_ids = asyncio.run(open_transactions(bootstrap))
        if committed == everything and not open_ids:
            return
        if time.monotonic() > deadline:
            behind = {place: (committed[place], end) for place, end in everything.items()}
            late = {place: pair for place, pair in behind.items() if pair[0] != pair[1]}
            book.accuse(f"hanging: last stable offset and end {late}, open transactions {open_ids}")
            return
        time.sleep(0.2)


def ends(bootstrap: str, places: list[Place], isolation: IsolationLevel) -> dict[Place, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    asked = {TopicPartition(*place): OffsetSpec.latest() for place in places}
    answers = admin.list_offsets(asked, isolation_level=isolation)
    return {(place.topic, place.partition): answer.result(30).offset for place, answer in answers.items()}


async def open_transactions(bootstrap: str) -> dict[str, str]:
    """Transactional id → state, of all that are in the middle of something."""
    async with Cluster(bootstrap) as cluster:
        answer = await (await cluster.any_connection()).send(
            ListTransactionsRequest([], []), ListTransactionsResponse
        )
    states = {entry.transactional_id: entry.transaction_state for entry in answer.transaction_states}
    return {name: state for name, state in states.items() if state not in AT_REST}
