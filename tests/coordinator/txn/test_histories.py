"""Random histories with fencing, delayed, duplicate and lost requests, and failovers are atomic."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest

from runnel.coordinator.txn.settings import TRANSACTION_V2
from runnel.messages.end_txn import EndTxnRequest
from runnel.messages.init_producer_id import InitProducerIdRequest
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import TopicPartition
from tests.coordinator.txn.world import World

NAMES = ("x", "y")
PARTITIONS = [TopicPartition("t", index) for index in range(3)]
STEPS = 400
TIMEOUT_MS = 30_000
RETRIABLE = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}

Identity = tuple[int, int]
Request = Callable[[], "ErrorCode | Identity"]
"""Sends a request to the coordinator or a partition: returns a producer id and epoch, or an error code."""


@dataclass
class Process:
    """A client of transaction V2: it retries lost requests, and initializes again after errors."""

    name: str
    identity: Identity | None = None
    label: str = ""
    """The prefix of the values of its current transaction."""
    acknowledged: list[str] = field(default_factory=list)
    unanswered: "Request | None" = None
    wish: str = ""
    """The pending request: init, a value, commit or abort."""


class History:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World()
        self.processes = [Process(self.random.choice(NAMES)) for _ in range(3)]
        self.late: list[Request] = []
        self.count = 0
        self.outcomes: dict[str, str] = {}
        """Transactions whose result was reported."""
        self.promised: dict[str, list[str]] = {}
        """The acknowledged values of committed transactions."""
        self.seen: set[str] = set()

    def step(self) -> None:
        chance = self.random.random()
        if chance < 0.85:
            self.go_on(self.random.choice(self.processes))
        elif chance < 0.92:
            if self.late:
                self.late.pop(self.random.randrange(len(self.late)))()
        elif chance < 0.96:
            self.trouble()
        else:
            self.heal()
        for partition in self.world.partitions.values():
            self.seen.update(partition.committed())

    def trouble(self) -> None:
        world, random = self.world, self.random
        match random.randrange(7):
            case 0:
                world.reload(loses_tail=world.commits_wait and random.random() < 0.5)
            case 1:
                world.commits_wait = not world.commits_wait
            case 2:
                world.markers_wait = not world.markers_wait
            case 3:
                world.log_refuses = None if world.log_refuses else ErrorCode.NOT_ENOUGH_REPLICAS
            case 4:
                partition = world.partition(random.choice(PARTITIONS))
                partition.error = None if partition.error else ErrorCode.KAFKA_STORAGE_ERROR
            case 5:
                world.wait(random.choice((100, 5000, TIMEOUT_MS)))
            case 6:
                # A process restarts without state.
                self.processes[random.randrange(3)] = Process(random.choice(NAMES))
        world.go_on()

    def go_on(self, process: Process) -> None:
        """Send the next request of a process, or retry the pending one."""
        if process.unanswered is None:
            self.choose(process)
        request = process.unanswered
        assert request is not None
        chance = self.random.random()
        if chance < 0.1:
            # Delayed: the sender retries, and both may arrive.
            self.late.append(request)
            return
        answer = request()
        if chance < 0.2:
            self.late.append(request)
        # The response is not sent until the log is committed; others are lost.
        if self.world.commits_wait or chance > 0.9:
            if self.random.random() < 0.1:
                process.identity, process.unanswered = None, None
            return
        self.hear(process, answer)

    def choose(self, process: Process) -> None:
        if process.identity is None:
            process.wish, process.unanswered = "init", self.init(process.name)
        elif not process.label or self.random.random() < 0.6:
            if not process.label:
                self.count += 1
                process.label, process.acknowledged = f"{self.count}", []
            process.wish = f"{process.label}.{len(process.acknowledged)}"
            place = self.random.choice(PARTITIONS)
            process.unanswered = self.produce(process.name, process.identity, place, process.wish)
        else:
            process.wish = self.random.choice(("commit", "commit", "abort"))
            process.unanswered = self.end(process.name, process.identity, process.wish == "commit")

    def hear(self, process: Process, answer: "ErrorCode | Identity") -> None:
        if answer in RETRIABLE:
            return
        process.unanswered = None
        if isinstance(answer, ErrorCode) and answer is not ErrorCode.NONE:
            # Fenced or timed out: it initializes again, and the result is unknown to it.
            process.identity, process.label = None, ""
            return
        if process.wish in ("commit", "abort"):
            self.outcomes[process.label] = process.wish
            self.promised[process.label] = process.acknowledged
            process.label = ""
        elif process.wish == "init":
            process.label = ""
        else:
            process.acknowledged.append(process.wish)
        if isinstance(answer, tuple):
            process.identity = answer

    def init(self, name: str) -> Request:
        request = InitProducerIdRequest(name, TIMEOUT_MS)
        return lambda: self._asked(lambda: self.world.shard.init_producer_id(request, self.world.now()))

    def end(self, name: str, identity: Identity, is_commit: bool) -> Request:
        request = EndTxnRequest(name, *identity, is_commit)
        return lambda: self._asked(lambda: self.world.shard.end(request, 5, self.world.now()))

    def produce(self, name: str, identity: Identity, place: TopicPartition, value: str) -> Request:
        def send() -> "ErrorCode | Identity":
            world = self.world
            partition = world.partition(place)
            try:
                if not partition.is_open_for(*identity):
                    errors = world.ask(
                        lambda: world.shard.add_partitions(
                            name, *identity, [place], TRANSACTION_V2, world.now()
                        )
                    )
                    if isinstance(errors, ErrorCode):
                        return errors
                    if world.commits_wait:
                        # The records wait for the coordinator's response, and fail with it.
                        return ErrorCode.COORDINATOR_NOT_AVAILABLE
                partition.write(*identity, value)
            except ApiError as error:
                return error.error
            return ErrorCode.NONE

        return send

    def _asked(self, decide: Callable[[], object]) -> "ErrorCode | Identity":
        try:
            reply = self.world.ask(decide)  # type: ignore[arg-type]
        except ApiError as error:
            return error.error
        if isinstance(reply, ErrorCode):
            return reply
        if reply.error_code:
            return ErrorCode.from_code(reply.error_code)
        return reply.producer_id, reply.producer_epoch

    def heal(self) -> None:
        world = self.world
        world.commits_wait = world.markers_wait = False
        world.log_refuses = None
        for partition in world.partitions.values():
            partition.error = None
        world.go_on()

    def settle(self) -> None:
        """End all faults, deliver or drop delayed requests, and advance the time."""
        self.heal()
        for request in self.late:
            if self.random.random() < 0.5:
                request()
        self.world.wait(3 * TIMEOUT_MS)

    def check(self) -> None:
        ledger = self.world.shard.store
        assert not ledger.ongoing and not ledger.prepared, "a transaction was never ended"
        visible: list[str] = []
        written: dict[str, set[str]] = defaultdict(set)
        for partition in self.world.partitions.values():
            assert not partition.is_open, "a partition still waits for an end"
            visible += partition.committed()
            for _, entry in partition.entries:
                if isinstance(entry, str):
                    written[entry.partition(".")[0]].add(entry)
        assert len(visible) == len(set(visible)), "something is seen twice"
        assert self.seen <= set(visible), "something was seen that is not committed"
        for label, values in written.items():
            shown = values & set(visible)
            assert shown in (set(), values), f"transaction {label} is torn"
            if self.outcomes.get(label) == "abort":
                assert not shown, f"transaction {label} was aborted, and is seen"
        for label, outcome in self.outcomes.items():
            if outcome == "commit":
                assert set(self.promised[label]) <= set(visible), (
                    f"transaction {label} was committed, and lost"
                )


@pytest.mark.parametrize("seed", range(40))
def test_random_histories_are_atomic(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        history.step()
    history.settle()
    history.check()
    assert "commit" in history.outcomes.values(), "nothing was ever committed"
