"""Clients of a cluster that run through all faults: producers, a reader, and a chain of transactions."""

import threading
import time
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tools.cluster import view
from tools.cluster.nodes import NodeCluster
from tools.cluster.security import ADMIN, OBSERVER
from tools.crash.chain.run import INPUT_PARTITIONS, Chain
from tools.crash.chain.workers import ChainConfig, PythonWorker
from tools.crash.cluster.acls import READER, SENDER, grant
from tools.crash.cluster.gaps import GapMeter
from tools.crash.ledger import Ledger, Partition
from tools.crash.load import Reader, Renewal, Sender, read_log
from tools.crash.rounds import Progress

PARTITIONS = 3
REPLICAS = 3
TOPICS: dict[str, dict[str, str]] = {
    # Segments small enough that faults meet rolls.
    "kept": {"segment.bytes": str(4 * 1024 * 1024)},
    "kept-compressed": {"segment.bytes": str(1024 * 1024), "compression.type": "zstd"},
}
SENDERS: list[dict[str, Any]] = [{}, {"compression.type": "lz4"}, {"batch.num.messages": 3}]
REQUEST_TIMEOUT_MS = 1000
"""A node that is paused or cut off answers nothing: the client must give up on it to find the new leader. It
is shorter than the sixty seconds of librdkafka, and the same for both brokers."""
SENDER_SETTINGS = {
    "enable.idempotence": True,
    "socket.timeout.ms": REQUEST_TIMEOUT_MS,
    "socket.connection.setup.timeout.ms": REQUEST_TIMEOUT_MS,
}
PAUSE_S = 0.025
SENDS_PER_PAUSE = 3
RECORD_BYTES_MAX = 500
OUTSTANDING_MAX = 1000
STUCK_S = 60.0
CHAIN_STUCK_S = 150.0
"""Longer, as sessions and transactions of workers must time out."""


class SteadySender(Sender):
    """An idempotent producer at a fixed rate, whose sends must all succeed."""

    def __init__(
        self,
        number: int,
        bootstrap: str,
        meter: GapMeter,
        partitions: list[Partition],
        ledger: Ledger,
        settings: Mapping[str, Any],
    ) -> None:
        self.renewal = Renewal()
        chosen = {**SENDER_SETTINGS, **SENDERS[number], **settings}
        super().__init__(number, bootstrap, partitions, ledger, chosen, RECORD_BYTES_MAX)
        self.meter = meter
        self._in_turn = cycle(partitions)

    def next_partition(self) -> Partition:
        """In turn: without a fault, no partition waits long for its next record."""
        return next(self._in_turn)

    def send_all(self) -> None:
        while not self._ending.is_set():
            self.renewal.perform(self._renew)
            due = time.monotonic() + PAUSE_S
            if self._outstanding < OUTSTANDING_MAX:
                self._send_some(SENDS_PER_PAUSE)
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)
        self._finish()

    def _finish(self) -> None:
        if self._producer.flush(STUCK_S):
            self.ledger.fail(f"stuck: sender {self.number} has {len(self._producer)} sends without an answer")

    def _renew(self) -> None:
        self._finish()
        self._producer = Producer(self._settings)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        super()._delivered(error, message)
        if error is not None:
            self.ledger.fail(f"sender {self.number}: a send failed beyond its retries: {error}")
        else:
            self.meter.acknowledged((message.topic(), message.partition()))


class Supervisor(threading.Thread):
    """Restarts the workers of the chain whenever they end, and watches that its output grows."""

    def __init__(self, chain: Chain) -> None:
        super().__init__(name="supervisor", daemon=True)
        self.chain = chain
        self._ending = threading.Event()
        self._grew_at = time.monotonic()

    def run(self) -> None:
        count = -1
        while not self._ending.wait(0.1):
            self.chain.ensure_running()
            if self.chain.output_reader.records_read != count:
                count, self._grew_at = self.chain.output_reader.records_read, time.monotonic()

    @property
    def idle_s(self) -> float:
        """Seconds since the last output of the chain."""
        return time.monotonic() - self._grew_at

    def end(self) -> None:
        self._ending.set()
        if self.is_alive():
            self.join()


class Clients:
    """All clients of a cluster, and the ledger of what was acknowledged to them."""

    def __init__(
        self,
        cluster: NodeCluster,
        folder: Path,
        seed: int,
        progress: Progress,
        sender_settings: Mapping[str, Any],
    ) -> None:
        self.cluster = cluster
        bootstrap, security = cluster.bootstrap, cluster.security
        grant(bootstrap, security)
        self.partitions = create_topics(bootstrap, security.client(ADMIN))
        self.ledger = Ledger(idempotent=frozenset(range(len(SENDERS))))
        self.meter = GapMeter(self.partitions)
        settings = {**sender_settings, **security.client(SENDER)}
        self.senders = [
            SteadySender(number, bootstrap, self.meter, self.partitions, self.ledger, settings)
            for number in range(len(SENDERS))
        ]
        self.reader = Reader(bootstrap, self.partitions, self.ledger, security.client(READER))
        config = ChainConfig(bootstrap, folder, seed, "consumer", security)
        workers = [PythonWorker(number, config) for number in range(INPUT_PARTITIONS)]
        self.chain = Chain(cluster, config, [*workers], progress, REPLICAS)
        self.supervisor = Supervisor(self.chain)

    @property
    def violations(self) -> list[str]:
        return self.ledger.violations + self.chain.verifier.violations

    def start(self) -> None:
        self._wait_for_acls()
        for thread in (*self.senders, self.reader, *self.chain.threads, self.supervisor):
            thread.start()
        self.wait_for_progress(time.monotonic())
        # Faults begin when all clients work.
        self.chain.wait_for_output(1)

    def _wait_for_acls(self) -> None:
        """Until every broker has replayed the topics of the chain, which follow the ACLs in the metadata."""
        deadline = time.monotonic() + STUCK_S
        for node in self.cluster.running:
            while node.is_broker and not self._knows_topics(node.bootstrap):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"node {node.number} does not know all topics after {STUCK_S:.0f} s")
                time.sleep(0.05)

    def _knows_topics(self, bootstrap: str) -> bool:
        try:
            known = view.state(bootstrap, self.cluster.security).partitions
        except view.Unreachable:
            return False
        return known.keys() >= {*self.chain.inputs, *self.chain.outputs}

    def wait_for_progress(self, since: float) -> bool:
        """Wait until each partition has an acknowledged send after `since`, and the reader has records."""
        read, deadline = self.reader.records_read, time.monotonic() + STUCK_S
        while (late := self.meter.waiting_since(since)) or self.reader.records_read == read:
            if time.monotonic() > deadline:
                what = f"sends to {late}" if late else "the reader"
                self.ledger.fail(f"stuck: {what} had no success for {STUCK_S:.0f} s")
                return False
            time.sleep(0.01)
        if self.supervisor.idle_s > CHAIN_STUCK_S:
            self.ledger.fail(f"stuck: the chain had no output for {self.supervisor.idle_s:.0f} s")
            return False
        return True

    def drain_and_verify(self) -> None:
        """Stop the clients, and compare all logs with what was acknowledged, before and after a restart."""
        for sender in self.senders:
            sender.end()
        self.reader.end()
        self.chain.end_inputs()
        self._verify_logs()
        self.supervisor.end()
        # Restarts the cluster.
        self.chain.drain_and_verify()
        self._verify_logs()

    def _verify_logs(self) -> None:
        observer = self.cluster.security.client(OBSERVER)
        for partition in self.partitions:
            log = read_log(self.cluster.bootstrap, partition, self.ledger, observer)
            self.ledger.verify(partition, log)

    def close(self) -> None:
        """End everything that is still running."""
        self.supervisor.end()
        for sender in self.senders:
            if sender.is_alive():
                sender.abandon()
        if self.reader.is_alive():
            self.reader.end()
        self.chain.close()


def create_topics(bootstrap: str, properties: Mapping[str, str]) -> list[Partition]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **properties})
    new = [NewTopic(name, PARTITIONS, REPLICAS, config=config) for name, config in TOPICS.items()]
    for future in admin.create_topics(new).values():
        future.result(STUCK_S)
    return [(name, partition) for name in TOPICS for partition in range(PARTITIONS)]
