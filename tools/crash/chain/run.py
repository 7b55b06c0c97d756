"""A chain of workers between two topics: all processes are killed at random, and the result is verified."""

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from runnel.client import Cluster
from runnel.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tools.broker_process import BrokerProcess
from tools.cluster.security import ADMIN, OBSERVER
from tools.crash.chain.traffic import (
    INPUT_IDS,
    NO_PROPERTIES,
    IdempotentInput,
    InputProducer,
    OutputReader,
    TransactionalInput,
    read_partitions,
)
from tools.crash.chain.transact import TRANSACTION_TIMEOUT_MS
from tools.crash.chain.verification import Log, Verifier, read_journals
from tools.crash.chain.worker import SESSION_TIMEOUT_MS
from tools.crash.chain.workers import INPUT, OUTPUT, ChainConfig, JavaWorker, PythonWorker, WorkerProcess
from tools.crash.ledger import Partition
from tools.crash.rounds import Progress, kill, no_progress

TIMEOUT_S = 90.0
INPUT_PARTITIONS = 3
OUTPUT_PARTITIONS = 4
OFFSETS_PARTITIONS = 4
INPUTS, OUTPUTS = "input", "reader"
"""The principals of the producers of the input, and of the reader of the output."""
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
COMPLETE = {"Empty", "CompleteCommit", "CompleteAbort", "Dead"}


@dataclass(slots=True)
class ChainOutcome:
    """The result of a chain."""

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


class Restartable(Protocol):
    """A broker or a cluster."""

    def start(self) -> object: ...

    def stop(self) -> int:
        """Stop it cleanly; 0 if it ended as it should."""
        ...


class Chain:
    """The processes and threads of one chain."""

    def __init__(
        self,
        broker: Restartable,
        config: ChainConfig,
        workers: list[WorkerProcess],
        progress: Progress,
        replicas: int = 1,
    ) -> None:
        self.broker = broker
        self.config = config
        self.workers = workers
        self.progress = progress
        self.verifier = Verifier()
        self.outcome = ChainOutcome(violations=self.verifier.violations)
        self.rng = random.Random(config.seed)
        self.inputs: list[Partition] = [(INPUT, number) for number in range(INPUT_PARTITIONS)]
        self.outputs: list[Partition] = [(OUTPUT, number) for number in range(OUTPUT_PARTITIONS)]
        bootstrap, seed, security = config.bootstrap, config.seed, config.security
        create_topics(bootstrap, replicas, security.client(ADMIN))
        inputs = security.client(INPUTS)
        self.plain = IdempotentInput("p", bootstrap, INPUT, seed, self.verifier, inputs)
        self.transactional = TransactionalInput("t", bootstrap, INPUT, seed, config.journals, inputs)
        self.output_reader = OutputReader(bootstrap, self.outputs, self.verifier, security.client(OUTPUTS))

    @property
    def threads(self) -> "list[InputProducer | OutputReader]":
        return [self.plain, self.transactional, self.output_reader]

    def end_inputs(self) -> None:
        self.plain.end()
        self.transactional.end()

    def ensure_running(self) -> None:
        for worker in self.workers:
            worker.ensure_running()

    def wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.ensure_running()
            time.sleep(0.05)

    def _doing(self) -> str:
        """What the workers are doing, and what they reported last."""
        for worker in self.workers:
            if worker.process is not None and worker.process.poll() is None:
                worker.show_stacks()
        return "\n".join(f"--- worker {worker.number}\n{worker.log_tail()}" for worker in self.workers)

    def wait_for_output(self, count: int) -> bool:
        deadline = time.monotonic() + TIMEOUT_S
        while self.output_reader.records_read < count:
            if time.monotonic() > deadline:
                self.verifier.fail(
                    f"stuck: {self.output_reader.records_read} records copied of at least {count}\n"
                    + self._doing()
                )
                return False
            self.ensure_running()
            time.sleep(0.02)
        return True

    def drain_and_verify(self) -> None:
        """All input is copied, workers leave, and no transaction stays open."""
        self.progress("no more kills: copying the remaining input")
        # Workers have transactions of their own until everything is copied.
        self._wait_until_closed(self.inputs, INPUT_IDS)
        inputs = self._read(self.inputs, "read_committed")
        if not self.wait_for_output(sum(map(len, inputs.values()))):
            return
        # A late duplicate would arrive now.
        self.wait(1.0)
        for worker in self.workers:
            if not worker.end():
                self.verifier.fail(f"worker {worker.number} did not stop on SIGTERM:\n{worker.log_tail()}")
        offsets: list[Partition] = [("__consumer_offsets", number) for number in range(OFFSETS_PARTITIONS)]
        self._wait_until_closed([*self.inputs, *self.outputs, *offsets])
        self.output_reader.end()
        self.verify(inputs)
        if self.broker.stop() != 0:
            self.verifier.fail("a clean stop ended with an error")
        self.broker.start()
        self.verify(inputs)
        self._wait_until_closed([*self.inputs, *self.outputs, *offsets])

    def verify(self, inputs: Log) -> None:
        verifier = self.verifier
        verifier.attempts = read_journals(self.config.journals)
        if self._read(self.inputs, "read_committed") != inputs:
            verifier.fail("the committed input has changed")
        outputs = self._read(self.outputs, "read_committed")
        everything = self._read(self.outputs, "read_uncommitted")
        verifier.check_transactions(inputs, "the input")
        verifier.check_transactions(outputs, "the output")
        verifier.check_commits(inputs, b"t")
        verifier.check_commits(outputs, b"w")
        verifier.check_acknowledged(self.plain.acknowledged, inputs)
        verifier.check_copies(inputs, outputs)
        verifier.check_seen(self.output_reader.seen, outputs)
        for partition, records in outputs.items():
            if set(records) - set(everything[partition]):
                verifier.fail(f"{partition}: committed records that read_uncommitted does not return")
        self.outcome.inputs = sum(map(len, inputs.values()))
        self.outcome.outputs = sum(map(len, outputs.values()))
        self.outcome.aborted = sum(map(len, everything.values())) - self.outcome.outputs
        self.outcome.attempts = len(verifier.attempts)

    def _read(self, partitions: list[Partition], isolation: str) -> Log:
        config = self.config
        return read_partitions(config.bootstrap, partitions, isolation, config.security.client(OBSERVER))

    def _wait_until_closed(self, partitions: list[Partition], ids: str = "") -> None:
        config = self.config
        wait_until_closed(config.bootstrap, partitions, self.verifier, config.security.client(OBSERVER), ids)

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        for thread in self.threads:
            if thread.is_alive():
                thread.end()


class KilledChain(Chain):
    """A chain whose broker and workers are killed at random."""

    def __init__(
        self, process: BrokerProcess, config: ChainConfig, workers: list[WorkerProcess], progress: Progress
    ) -> None:
        super().__init__(process, config, workers, progress)
        self.process = process

    def run(self, kills: int) -> None:
        """Produce under kills, then drain and verify."""
        for thread in self.threads:
            thread.start()
        self.ensure_running()
        self.wait_for_output(1)
        while self.outcome.kills < kills and not self.verifier.violations:
            self.wait(self.rng.uniform(0.05, 1.0))
            if self.rng.random() < 0.4:
                self.wait_for_output(self.output_reader.records_read + 1)
            self.inject_fault()
            self.progress(
                f"kill {self.outcome.kills}/{kills}: {self.plain.sent + self.transactional.sent} sent, "
                f"{self.output_reader.records_read} copied and read"
            )
        self.end_inputs()
        if not self.verifier.violations:
            self.drain_and_verify()

    def inject_fault(self) -> None:
        """Kill the broker, a worker, or both; sometimes pause a worker until it is a zombie."""
        luck = self.rng.random()
        if luck < 0.08:
            self.outcome.pauses += 1
            self.rng.choice(self.workers).pause(SESSION_TIMEOUT_MS / 1000 + self.rng.uniform(0.2, 1.5))
            return
        if luck < 0.65:
            self.outcome.worker_kills += 1
            self.rng.choice(self.workers).kill()
        if luck > 0.55:
            self.outcome.broker_kills += 1
            kill(self.process, self.rng)
            self.process.start()
        self.ensure_running()


def run_chain(
    folder: Path,
    kills: int,
    seed: int = 1,
    policy: str = "commit",
    client: str = "python",
    protocol: str = "classic",
    progress: Progress = no_progress,
) -> ChainOutcome:
    """Run one chain on a new broker, and verify it."""
    began = time.monotonic()
    broker = BrokerProcess(folder / "data", {**SETTINGS, "log.flush.policy": policy}, folder / "broker.log")
    try:
        broker.start()
        config = ChainConfig(broker.bootstrap, folder, seed, protocol)
        kind = PythonWorker if client == "python" else JavaWorker
        running = KilledChain(
            broker, config, [kind(number, config) for number in range(INPUT_PARTITIONS)], progress
        )
        try:
            running.run(kills)
        finally:
            running.close()
    finally:
        broker.kill()
    running.outcome.seconds = time.monotonic() - began
    return running.outcome


def create_topics(bootstrap: str, replicas: int, properties: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **properties})
    sizes = {INPUT: INPUT_PARTITIONS, OUTPUT: OUTPUT_PARTITIONS}
    new = [NewTopic(name, size, replicas) for name, size in sizes.items()]
    for future in admin.create_topics(new).values():
        future.result(TIMEOUT_S)


def wait_until_closed(
    bootstrap: str, partitions: list[Partition], verifier: Verifier, properties: Mapping[str, str], ids: str
) -> None:
    """Wait until every transaction has ended, also by its timeout: the last stable offset reaches the end.

    Transactional ids begin with `ids`; others may have open transactions.
    """
    deadline = time.monotonic() + 3 * TRANSACTION_TIMEOUT_MS / 1000 + 10
    while True:
        committed, everything = (
            ends(bootstrap, partitions, isolation, properties)
            for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        )
        states = asyncio.run(open_transactions(bootstrap, properties))
        open_ids = {name: state for name, state in states.items() if name.startswith(ids)}
        if committed == everything and not open_ids:
            return
        if time.monotonic() > deadline:
            behind = {partition: (committed[partition], end) for partition, end in everything.items()}
            late = {partition: pair for partition, pair in behind.items() if pair[0] != pair[1]}
            verifier.fail(f"hanging: last stable offset and end {late}, open transactions {open_ids}")
            return
        time.sleep(0.2)


def ends(
    bootstrap: str,
    partitions: list[Partition],
    isolation: IsolationLevel,
    properties: Mapping[str, str] = NO_PROPERTIES,
) -> dict[Partition, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **properties})
    asked = {TopicPartition(*partition): OffsetSpec.latest() for partition in partitions}
    answers = admin.list_offsets(asked, isolation_level=isolation)
    return {
        (partition.topic, partition.partition): answer.result(30).offset
        for partition, answer in answers.items()
    }


async def open_transactions(bootstrap: str, properties: Mapping[str, str] = NO_PROPERTIES) -> dict[str, str]:
    """Transactional id → state, of all transactions that are not complete."""
    states: dict[str, str] = {}
    async with Cluster(bootstrap, properties=properties) as cluster:
        await cluster.refresh([])
        # Each broker lists the transactions that it coordinates.
        for node in list(cluster.nodes):
            connection = await cluster.connection(node)
            answer = await connection.send(ListTransactionsRequest([], []), ListTransactionsResponse)
            states |= {entry.transactional_id: entry.transaction_state for entry in answer.transaction_states}
    return {name: state for name, state in states.items() if state not in COMPLETE}
