"""The workers as processes: started, killed, paused, and restarted whenever they end."""

import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tools.cluster.security import NO_SECURITY, Security
from tools.fetch.programs import Unavailable
from tools.kafka.commands import kafka_jars, tool
from tools.settings import write_properties

INPUT, OUTPUT, GROUP = "chain-in", "chain-out", "chain"
ROOT = Path(__file__).resolve().parents[3]
REST_S = 0.5
WORKERS = "worker"
"""The principal of all workers."""
STACKS_S = 0.5
"""How long a worker takes to write its stacks."""
JVM_FLAGS = ("-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


@dataclass(frozen=True, slots=True)
class ChainConfig:
    """What all workers of a chain share."""

    bootstrap: str
    folder: Path
    seed: int
    protocol: str = "classic"
    security: Security = NO_SECURITY

    @property
    def journals(self) -> Path:
        return self.folder / "journals"


class WorkerProcess(ABC):
    """One worker, and its current process."""

    stacks_signal = signal.SIGUSR1

    def __init__(self, number: int, config: ChainConfig) -> None:
        self.number = number
        self.config = config
        self.starts = 0
        self._started_s = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self._starting = threading.Lock()
        """Held while a process is started: several threads restart workers that have ended."""
        config.folder.mkdir(parents=True, exist_ok=True)
        self._log: BinaryIO = (config.folder / f"worker-{number}.log").open("ab")

    @abstractmethod
    def command(self) -> list[str]:
        """The command of the next process."""

    def ensure_running(self) -> None:
        """Start a process unless one is running; one that fails at once is restarted with a delay."""
        with self._starting:
            if not self._is_closed:
                self._ensure_running()

    def _ensure_running(self) -> None:
        if self.process is not None and self.process.poll() is None:
            return
        if self.process is not None and time.monotonic() < self._started_s + REST_S:
            return
        self._started_s = time.monotonic()
        self.starts += 1
        self.process = subprocess.Popen(
            self.command(), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
        )

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def pause(self, seconds: float) -> None:
        """Pause long enough to be considered dead, then resume."""
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(self.process.pid, signal.SIGCONT)

    def end(self, timeout_s: float = 60.0) -> bool:
        """SIGTERM; False if it had to be killed."""
        if self.process is None:
            return True
        self.process.terminate()
        try:
            self.process.wait(timeout_s)
            return True
        except subprocess.TimeoutExpired:
            self.show_stacks()
            self.kill()
            return False

    def show_stacks(self) -> None:
        """Let the process write to its log what its threads are doing."""
        assert self.process is not None
        self.process.send_signal(self.stacks_signal)
        time.sleep(STACKS_S)

    def log_tail(self, characters: int = 3000) -> str:
        return Path(self._log.name).read_text(errors="replace")[-characters:]

    def close(self) -> None:
        with self._starting:
            self._is_closed = True
        self.kill()
        self._log.close()


class PythonWorker(WorkerProcess):
    """A worker with confluent-kafka; workers differ in how they restart."""

    def command(self) -> list[str]:
        name = f"w{self.number}.{self.starts}"
        # Every third worker takes a new transactional id at each start: its open transaction must time out.
        is_new_id = self.number % 3 == 2
        # Every third worker is a new member at each start, the others are static members.
        instance = "" if self.number % 3 == 0 else f"worker-{self.number}"
        options = {
            "bootstrap": self.config.bootstrap,
            "name": name,
            "transactional-id": name if is_new_id else f"w{self.number}",
            "group": GROUP,
            "protocol": self.config.protocol,
            "input": INPUT,
            "output": OUTPUT,
            "seed": str(self.config.seed),
            "journals": str(self.config.journals),
            "instance": instance,
        }
        if properties := self.config.security.client(WORKERS):
            path = write_properties(self.config.folder / f"worker-{self.number}.properties", properties)
            options["properties"] = str(path)
        pairs = [part for key, value in options.items() for part in (f"--{key}", value)]
        return [sys.executable, "-m", "tools.crash.chain.worker", *pairs]


class JavaWorker(WorkerProcess):
    """Apache Kafka's TransactionalMessageCopier, one per input partition; it ends at the end of its input."""

    stacks_signal = signal.SIGQUIT

    def command(self) -> list[str]:
        options = {
            "broker-list": self.config.bootstrap,
            "input-topic": INPUT,
            "input-partition": str(self.number),
            "output-topic": OUTPUT,
            "consumer-group": GROUP,
            "transaction-size": "50",
            "transaction-timeout": "10000",
            "transactional-id": f"copier-{self.number}",
        }
        pairs = [part for key, value in options.items() for part in (f"--{key}", value)]
        name = "transactional-message-copier"
        return tool(name, *pairs, "--enable-random-aborts", flags=JVM_FLAGS)


def java_missing() -> str | None:
    """Why there can be no Java workers on this machine, or None."""
    try:
        kafka_jars()
    except Unavailable as reason:
        return str(reason)
    return None
