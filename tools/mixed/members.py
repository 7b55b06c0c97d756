"""Group members of several clients: how each is started, and the process whose output is recorded."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.conformance.franz_go import build
from tools.kafka.commands import kafka_jars, tool
from tools.mixed.ledger import Ledger

ROOT = Path(__file__).resolve().parent.parent.parent
LEAVE_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Group:
    """What every member is given."""

    bootstrap: str
    topic: str
    name: str


Command = Callable[[Group], list[str]]


def librdkafka(_: Path, **changes: object) -> Command:
    def command(group: Group) -> list[str]:
        settings = {
            "bootstrap.servers": group.bootstrap,
            "group.id": group.name,
            "group.protocol": "consumer",
            "fetch.wait.max.ms": 100,
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in changes.items()},
        }
        program = ["-m", "tools.mixed.librdkafka_member", group.topic, json.dumps(settings)]
        return [sys.executable, *program]

    return command


def java(_: Path) -> Command:
    """VerifiableConsumer, one of Apache Kafka's own tools."""
    kafka_jars()
    flags = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
    reading = ["--group-protocol", "consumer", "--reset-policy", "earliest"]

    def command(group: Group) -> list[str]:
        identity = ["--bootstrap-server", group.bootstrap, "--topic", group.topic, "--group-id", group.name]
        return tool("kafka-verifiable-consumer", *identity, *reading, flags=flags)

    return command


def franz_go(scratch: Path) -> Command:
    """A small program around franz-go, built with the source that its own tests run from."""
    program = build(Path(__file__).with_name("franz_member.go"), scratch / "franz-member")
    return lambda group: [str(program), group.bootstrap, group.topic, group.name]


CLIENTS: dict[str, Callable[[Path], Command]] = {
    "librdkafka": librdkafka,
    "java": java,
    "franz-go": franz_go,
}


class Running:
    """One member process, whose output is added to the ledger."""

    def __init__(self, name: str, command: list[str], ledger: Ledger, log: Path) -> None:
        self.name = name
        self._ledger = ledger
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # The last line of a killed member may be incomplete.
            if line.startswith("{") and line.endswith("}\n"):
                self._ledger.add(self.name, json.loads(line))

    def leave(self) -> None:
        """SIGTERM; wait until it has left the group and ended."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(LEAVE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self._drain()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        at_ms = time.time_ns() // 1_000_000
        self._drain()
        self._ledger.killed(self.name, at_ms)

    def _drain(self) -> None:
        self._reader.join(10)
        if self.process.stdout is not None:
            self.process.stdout.close()
