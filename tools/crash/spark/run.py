"""A job on a Spark cluster under random kills of its processes and of the broker, and its verification."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka.admin import AdminClient, NewTopic

from tools.broker_process import BrokerProcess
from tools.crash.chain.traffic import IdempotentInput, read_partitions
from tools.crash.chain.verification import Log, Verifier
from tools.crash.ledger import Partition
from tools.crash.rounds import Progress, kill, no_progress
from tools.spark_cluster import Cluster, running_cluster

INPUT = "spark-in"
PARTITIONS = 3
RUNNEL = [sys.executable, "-m", "runnel.server.cli"]
EXECUTORS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.driver.memory": "512m",
    # Every kill may cost a task one of its attempts.
    "spark.task.maxFailures": "20",
}
TIMEOUT_S = 300.0
RESTART_INTERVAL_S = 2.0
VICTIMS = {"executor": 0.3, "python worker": 0.25, "driver": 0.2, "broker": 0.25}
SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


@dataclass(slots=True)
class SparkOutcome:
    """The outcome of a run."""

    kills: Counter[str] = field(default_factory=Counter)
    drivers: int = 0
    inputs: int = 0
    outputs: int = 0
    undone: int = 0
    """Records that were written and never committed."""
    audit: str = ""
    """The headline of the audit."""
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)


class Job(Protocol):
    """A streaming job that copies every record of the input, and how to read its output."""

    topics: list[str]
    """Topics to create besides the input."""
    command: list[str]
    """Starts the driver; started again, it resumes where the last one was killed."""

    def shown(self) -> int:
        """A number that grows with the committed output."""
        ...

    def wanted(self, inputs: Log) -> Counter[Any]:
        """The expected records, and how often each."""
        ...

    def found(self) -> Counter[Any]:
        """The committed records, read by a third-party library."""
        ...

    def undone(self) -> int:
        """How many records were written and never committed."""
        ...

    def wait_until_closed(self) -> str | None:
        """Wait until no transaction of the killed driver is open; a violation if one stays open."""
        ...

    def audit_options(self, count: int) -> list[str]:
        """Options by which the audit of the input verifies the output as well."""
        ...


class Driver:
    """The job's driver, restarted whenever it has ended."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self.starts = 0

    def restart_if_ended(self) -> None:
        """Start it unless it runs, at most once in a while."""
        if self._process is not None:
            if self._process.poll() is None or time.monotonic() < self._started_s + RESTART_INTERVAL_S:
                return
            self.kill()
        self._started_s = time.monotonic()
        self.starts += 1
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """kill -9 of Python and Java at once."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class SlowInput(IdempotentInput):
    """Produces at a rate that a job under kills can follow."""

    def produce_some(self) -> None:
        super().produce_some()
        time.sleep(0.4)


class SparkRun:
    """Broker, cluster, input and driver of one run."""

    def __init__(
        self, broker: BrokerProcess, cluster: Cluster, job: Job, folder: Path, seed: int, progress: Progress
    ) -> None:
        self.broker = broker
        self.cluster = cluster
        self.job = job
        self.folder = folder
        self.progress = progress
        self.verifier = Verifier()
        self.outcome = SparkOutcome(violations=self.verifier.violations)
        self.chance = random.Random(seed)
        create_topics(broker.bootstrap, [INPUT, *job.topics])
        self.input = SlowInput("p", broker.bootstrap, INPUT, seed, self.verifier)
        self.driver = Driver(job.command, folder / "driver.log")

    def run(self, kills: int) -> None:
        """Produce, kill, verify."""
        self.input.start()
        self.wait_for_output(1)
        while self.outcome.kills.total() < kills and not self.verifier.violations:
            # Most kills hit a process in the middle of a batch, some during a start.
            if self.chance.random() < 0.75:
                self.wait_for_output(self.job.shown() + 1)
            # Right after an output Spark has not logged its commit yet; later, the next batch is running.
            self.wait(self.chance.choice([0.0, self.chance.uniform(0.1, 4.0)]))
            self.kill_any()
            killed = ", ".join(f"{count} {name}" for name, count in sorted(self.outcome.kills.items()))
            self.progress(f"killed {killed}: {self.input.sent} sent, {self.job.shown()} committed")
        self.input.end()
        if not self.verifier.violations:
            self.finish()
        self.outcome.drivers = self.driver.starts

    def kill_any(self) -> None:
        victim = self.chance.choices(list(VICTIMS), list(VICTIMS.values()))[0]
        if victim == "driver":
            self.driver.kill()
        elif victim == "broker":
            kill(self.broker, self.chance)
            time.sleep(self.chance.uniform(0, 2))
            self.broker.start()
        elif not self.kill_one(
            self.cluster.executors() if victim == "executor" else self.cluster.python_workers()
        ):
            return
        self.outcome.kills[victim] += 1

    def kill_one(self, pids: list[int]) -> bool:
        if not pids:
            self.wait(0.5)
            return False
        with suppress(ProcessLookupError):
            os.kill(self.chance.choice(sorted(pids)), signal.SIGKILL)
        return True

    def wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.driver.restart_if_ended()
            time.sleep(0.05)

    def wait_for_output(self, count: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while self.job.shown() < count:
            if time.monotonic() > deadline:
                self.verifier.fail(f"stuck: the output does not grow beyond {self.job.shown()}")
                return
            self.wait(0.2)

    def finish(self) -> None:
        """Wait for the whole output, stop the driver, and verify."""
        self.progress("no more kills: waiting for the rest of the output")
        inputs = self.read_input()
        wanted = self.job.wanted(inputs).total()
        deadline = time.monotonic() + TIMEOUT_S
        while self.job.found().total() < wanted:
            if time.monotonic() > deadline:
                self.verifier.fail(f"stuck: {wanted} records in, and not all of them out")
                break
            self.wait(1.0)
        # Duplicates would appear now.
        self.wait(5.0)
        self.driver.kill()
        if left := self.job.wait_until_closed():
            self.verifier.fail(left)
        self.verify(inputs)
        if self.broker.stop() != 0:
            self.verifier.fail("a clean stop ended with an error")
        self.broker.start()
        self.verify(inputs)
        self.progress("running the audit")
        self.audit(wanted)

    def read_input(self) -> Log:
        places: list[Partition] = [(INPUT, number) for number in range(PARTITIONS)]
        return read_partitions(self.broker.bootstrap, places, "read_committed")

    def verify(self, inputs: Log) -> None:
        wanted, found = self.job.wanted(inputs), self.job.found()
        for difference in differences(wanted, found):
            self.verifier.fail(difference)
        self.verifier.check_acknowledged(self.input.acknowledged, inputs)
        self.outcome.inputs = wanted.total()
        self.outcome.outputs = found.total()
        self.outcome.undone = self.job.undone()

    def audit(self, count: int) -> None:
        """Runnel's audit, given only the expected number of records."""
        audit = [*RUNNEL, "pipeline", "run", "audit", "--bootstrap-server", self.broker.bootstrap]
        options = ["--topic", INPUT, "--expect", f"{INPUT}={count}", *self.job.audit_options(count)]
        report = ["--report", str(self.folder / "audit"), "--json", "--quiet"]
        ended = subprocess.run([*audit, *options, *report], capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            self.verifier.fail(
                f"the audit ended with {ended.returncode}: {ended.stdout}{ended.stderr[-2000:]}"
            )
            return
        self.outcome.audit = json.loads(ended.stdout)["headline"]


def differences(inputs: Mapping[Any, int], outputs: Mapping[Any, int]) -> list[str]:
    """Records that are not in the output as often as in the input, each kind with a few examples."""
    lost = [value for value, count in inputs.items() if outputs.get(value, 0) < count]
    duplicated = [value for value, count in outputs.items() if value in inputs and count > inputs[value]]
    unknown = [value for value in outputs if value not in inputs]
    return [
        f"{len(found)} records {kind}: {sorted(found)[:5]}"
        for kind, found in (("lost", lost), ("duplicated", duplicated), ("unknown", unknown))
        if found
    ]


MakeJob = Callable[[str, str, Path], Job]
"""Broker's address, Spark's master, a folder → the job."""


def under_kills(
    make_job: MakeJob, folder: Path, kills: int, seed: int = 1, progress: Progress = no_progress
) -> SparkOutcome:
    """Run a job under kills, from an empty broker to its verification."""
    began = time.monotonic()
    broker = BrokerProcess(folder / "data", SETTINGS, folder / "broker.log")
    try:
        broker.start()
        with running_cluster(folder / "cluster") as cluster:
            job = make_job(broker.bootstrap, cluster.master, folder)
            run = SparkRun(broker, cluster, job, folder, seed, progress)
            try:
                run.run(kills)
            finally:
                run.driver.kill()
    finally:
        broker.kill()
    run.outcome.seconds = time.monotonic() - began
    return run.outcome


def create_topics(bootstrap: str, names: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        future.result(TIMEOUT_S)
