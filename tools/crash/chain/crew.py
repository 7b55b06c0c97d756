"""The workers as processes: started, killed, held still, and started again whenever they end."""

import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tools.fetch.programs import Unavailable
from tools.kafka.commands import kafka_jars, tool

INPUT, OUTPUT, GROUP = "chain-in", "chain-out", "chain"
ROOT = Path(__file__).resolve().parents[3]
REST_S = 0.5
JVM_FLAGS = ("-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a chain plays."""

    bootstrap: str
    folder: Path
    seed: int
    protocol: str = "classic"

    @property
    def journals(self) -> Path:
        return self.folder / "journals"


class Hand(ABC):
    """One place in the crew, and the process that fills it just now."""

    def __init__(self, number: int, scene: Scene) -> None:
        self.number = number
        self.scene = scene
        self.lives = 0
        self._born_s = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        scene.folder.mkdir(parents=True, exist_ok=True)
        self._log: BinaryIO = (scene.folder / f"worker-{number}.log").open("ab")

    @abstractmethod
    def command(self) -> list[str]:
        """What to start for the next life."""

    def revive(self) -> None:
        """Start a process unless there is one; one that ends at once is not started in every moment."""
        if self.process is not None and self.process.poll() is None:
            return
        if self.process is not None and time.monotonic() < self._born_s + REST_S:
            return
        self._born_s = time.monotonic()
        self.lives += 1
        self.process = subprocess.Popen(
            self.command(), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
        )

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def hold(self, seconds: float) -> None:
        """Stand still long enough to be taken for dead, then go on as if nothing had happened."""
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(self.process.pid, signal.SIGCONT)

    def end(self, timeout_s: float = 30.0) -> bool:
        """SIGTERM; was it enough?"""
        if self.process is None:
            return True
        self.process.terminate()
        try:
            self.process.wait(timeout_s)
            return True
        except subprocess.TimeoutExpired:
            self.kill()
            return False

    def close(self) -> None:
        self.kill()
        self._log.close()


class PythonHand(Hand):
    """A worker with confluent-kafka. Each place of the crew comes back in its own way after a death."""

    def command(self) -> list[str]:
        name = f"w{self.number}.{self.lives}"
        # Every third place takes a new id for each life: what its last life left open, only time can end.
        is_new_id = self.number % 3 == 2
        # Every third place is a new member in each life, the others are known to the group by name.
        instance = "" if self.number % 3 == 0 else f"hand-{self.number}"
        options = {
            "bootstrap": self.scene.bootstrap,
            "name": name,
            "transactional-id": name if is_new_id else f"w{self.number}",
            "group": GROUP,
            "protocol": self.scene.protocol,
            "input": INPUT,
            "output": OUTPUT,
            "seed": str(self.scene.seed),
            "journals": str(self.scene.journals),
            "instance": instance,
        }
        pairs = [part for key, value in options.items() for part in (f"--{key}", value)]
        return [sys.executable, "-m", "tools.crash.chain.worker", *pairs]


class JavaHand(Hand):
    """Apache Kafka's TransactionalMessageCopier, one per input partition; it ends at the end of its input."""

    def command(self) -> list[str]:
        options = {
            "broker-list": self.scene.bootstrap,
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
