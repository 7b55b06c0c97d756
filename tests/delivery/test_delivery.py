"""Fault injection for the programs of docs/DELIVERY.md: the results are as documented."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runnel.client import Groups, SyncClient, Transactions
from runnel.model.ids import TopicPartition
from runnel.testing import Broker
from tests.delivery.page import claims, programs
from tests.delivery.wire import ANSWER, END_TXN, OFFSET_COMMIT, PRODUCE, REQUEST, Wire

SABOTEUR = Path(__file__).with_name("saboteur.py")
CLAIMS = claims()
TIMEOUT_S = 60
ORDERS = ["1", "2", "3"]


class Stage:
    """A broker behind a lossy proxy, and the programs of the page."""

    def __init__(self, broker: Broker, wire: Wire, folder: Path) -> None:
        self.broker = broker
        self.wire = wire
        self.folder = folder
        self.running: list[subprocess.Popen[str]] = []
        self.client: SyncClient
        for name, text in programs().items():
            (folder / name).write_text(text)

    def start(self, program: str, *arguments: str, sabotage: str | None = None) -> "subprocess.Popen[str]":
        """Start a program of the page as a process."""
        command = [sys.executable]
        if sabotage is not None:
            command += [str(SABOTEUR), sabotage]
        command += [program, self.broker.bootstrap_servers, *arguments]
        process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True)
        self.running.append(process)
        return process

    def run(self, program: str, *arguments: str) -> "tuple[int, str]":
        """Run a program of the page; returns its exit code and output."""
        process = self.start(program, *arguments)
        printed, _ = process.communicate(timeout=TIMEOUT_S)
        return process.returncode, printed

    def values(self, topic: str, *, committed_only: bool = True) -> list[str]:
        messages = self.client.read(topic, committed_only=committed_only)
        return [(message.value or b"").decode() for message in messages]

    def wait_for_bills(self, expected: list[str]) -> None:
        """Wait until all orders are committed and these invoices exist, and check that no more follow."""

        def noted() -> int:
            commits = self.client.run(lambda cluster: Groups(cluster).committed("billing"))
            here = TopicPartition("orders", 0)
            return commits[here].offset if here in commits else 0

        wait_until(lambda: noted() == len(ORDERS) and len(self.values("bills")) >= len(expected))
        self.end()
        assert self.values("bills") == expected

    def end(self) -> None:
        for process in self.running:
            process.kill()
            process.communicate()
        self.running.clear()


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline_s, "this never happens"
        time.sleep(0.01)


def warm_up(client: SyncClient) -> None:
    """Create the internal topics in advance, because librdkafka would sleep for a second."""
    client.run(lambda cluster: Groups(cluster).committed("billing"))
    client.run(lambda cluster: Transactions(cluster).init_producer_id("unknown", timeout_ms=1000))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Wire() as wire:
        advertised = f"PLAINTEXT://127.0.0.1:{wire.port}"
        settings = {"advertised.listeners": advertised, "transaction.state.log.num.partitions": 2}
        with Broker(settings, data_dir=tmp_path / "data") as broker:
            wire.broker_port = broker.port
            stage = Stage(broker, wire, tmp_path)
            with broker.client() as stage.client:
                stage.client.create_topic("orders", partitions=1)
                stage.client.create_topic("bills", partitions=1)
                warm_up(stage.client)
                try:
                    yield stage
                finally:
                    stage.end()


def test_the_page_is_covered() -> None:
    """Every row and program of the page is tested here."""
    works = ["at_most_once.py", "at_least_once.py", "exactly_once.py"]
    assert set(programs()) == {"send.py", "prepare.py", "commit.py", *works}
    tried = {(mode, failure) for mode in MODES for failure in PRODUCER_FAILURES}
    tried |= {(program, failure) for program in works for failure in CONSUMER_FAILURES}
    assert set(CLAIMS) == tried


# Producers.

MODES = ["at-most-once", "at-least-once", "exactly-once"]
PRODUCER_FAILURES = {"none": None, "the request is lost": REQUEST, "the response is lost": ANSWER}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("failure", PRODUCER_FAILURES)
def test_producer_failures(stage: Stage, mode: str, failure: str) -> None:
    lost = PRODUCER_FAILURES[failure]
    if lost is not None:
        stage.wire.lose(lost, PRODUCE, 3)
    assert stage.run("send.py", mode, *ORDERS) == (0, "")
    expected = CLAIMS[mode, failure]
    wait_until(lambda: len(stage.values("orders")) >= len(expected))
    assert stage.values("orders") == expected
    # With acks=0 there is no response to lose.
    assert stage.wire.has_lost is (lost is not None and (mode, lost) != ("at-most-once", ANSWER))


# Consume-transform-produce.

BETWEEN = {
    "at_most_once.py": "after:Consumer.commit:2",
    "at_least_once.py": "before:Consumer.commit:2",
    "exactly_once.py": "amid:Producer.commit_transaction:2",
}
AFTER = {
    "at_most_once.py": "after:Producer.flush:2",
    "at_least_once.py": "after:Consumer.commit:2",
    "exactly_once.py": "after:Producer.commit_transaction:2",
}
COMMITS = {"at_most_once.py": OFFSET_COMMIT, "at_least_once.py": OFFSET_COMMIT, "exactly_once.py": END_TXN}


def undisturbed(stage: Stage, program: str) -> None:
    stage.start(program)


def killed_between(stage: Stage, program: str) -> None:
    assert stage.start(program, sabotage=f"{BETWEEN[program]}:SIGKILL").wait(TIMEOUT_S) == -signal.SIGKILL
    stage.start(program)


def killed_after(stage: Stage, program: str) -> None:
    assert stage.start(program, sabotage=f"{AFTER[program]}:SIGKILL").wait(TIMEOUT_S) == -signal.SIGKILL
    stage.start(program)


def response_lost(stage: Stage, program: str) -> None:
    stage.wire.lose(ANSWER, COMMITS[program], 2)
    stage.start(program)
    wait_until(lambda: stage.wire.has_lost)


def suspended_between(stage: Stage, program: str) -> None:
    suspended = stage.start(program, sabotage=f"{BETWEEN[program]}:SIGSTOP")
    os.waitpid(suspended.pid, os.WUNTRACED)
    stage.start(program)
    wait_until(lambda: "3" in stage.values("bills"))
    suspended.send_signal(signal.SIGCONT)
    if program == "at_most_once.py":
        wait_until(lambda: len(stage.values("bills")) == 3)
    else:
        assert suspended.wait(TIMEOUT_S) == 1


CONSUMER_FAILURES: dict[str, Callable[[Stage, str], None]] = {
    "none": undisturbed,
    "killed between processing and commit": killed_between,
    "killed after both": killed_after,
    "the response to the commit is lost": response_lost,
    "suspended between processing and commit, resumed after its successor has finished": suspended_between,
}


@pytest.mark.parametrize("program", BETWEEN)
@pytest.mark.parametrize("failure", CONSUMER_FAILURES)
def test_consumer_failures(stage: Stage, program: str, failure: str) -> None:
    for order in ORDERS:
        stage.client.send("orders", order.encode())
    CONSUMER_FAILURES[failure](stage, program)
    stage.wait_for_bills(CLAIMS[program, failure])


def test_read_uncommitted_sees_aborted_records(stage: Stage) -> None:
    for order in ORDERS:
        stage.client.send("orders", order.encode())
    killed_between(stage, "exactly_once.py")
    stage.wait_for_bills(["1", "2", "3"])
    assert stage.values("bills", committed_only=False) == ["1", "2", "2", "3"]
    assert "read aborted records: 1 2 2 3" in (Path(__file__).parents[2] / "docs/DELIVERY.md").read_text()


# Two-phase commit.


def test_one_process_commits_the_transactions_of_others(stage: Stage) -> None:
    notes = []
    for number in (1, 2):
        code, note = stage.run("prepare.py", f"sink-{number}", f"a{number}", f"b{number}")
        assert code == 0
        notes.append(note)
    # The workers have exited; now the broker restarts.
    stage.broker.restart()
    assert stage.values("bills") == []
    assert stage.values("bills", committed_only=False) == ["a1", "b1", "a2", "b2"]
    assert stage.run("commit.py", notes[1]) == (0, "")
    # The first transaction is still open, so read_committed consumers wait for it.
    assert stage.values("bills") == []
    for _ in range(2):
        assert stage.run("commit.py", *notes) == (0, "")
        assert stage.values("bills") == ["a1", "b1", "a2", "b2"]


def test_a_transaction_aborted_by_a_restarted_worker_cannot_be_committed(stage: Stage) -> None:
    _, stale = stage.run("prepare.py", "sink-1", "first")
    _, fresh = stage.run("prepare.py", "sink-1", "second")
    assert json.loads(stale)[1:] != json.loads(fresh)[1:]
    code, _ = stage.run("commit.py", stale)
    assert code == 1
    assert stage.values("bills") == []
    assert stage.run("commit.py", fresh) == (0, "")
    assert stage.values("bills") == ["second"]
