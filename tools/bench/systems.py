"""The two brokers that are compared, started the same way and measured from outside."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tools.broker_process import BrokerProcess, answers, free_port
from tools.processes import cpu_seconds, memory_bytes, memory_peak_bytes

START_TIMEOUT_S = 120.0
DEFAULTS: Mapping[str, str] = {}
"""No settings but those that a broker has by itself."""


class Running(Protocol):
    """A broker that answers."""

    @property
    def port(self) -> int: ...

    @property
    def started_in_s(self) -> float: ...

    @property
    def pid(self) -> int: ...

    @property
    def waits_for_disk(self) -> dict[str, str]:
        """The topic settings by which an acknowledgement means that the disk has it."""
        ...

    def stop(self) -> float:
        """End it cleanly; the seconds that took."""
        ...


class System(Protocol):
    """One of the two brokers."""

    name: str
    settings: str

    def launch(self, folder: Path, settings: Mapping[str, str] = DEFAULTS) -> Running: ...


@dataclass(slots=True)
class RunnelRunning:
    broker: BrokerProcess

    @property
    def port(self) -> int:
        return self.broker.port

    @property
    def pid(self) -> int:
        return self.broker.pid

    @property
    def started_in_s(self) -> float:
        return self.broker.started_in_s

    @property
    def waits_for_disk(self) -> dict[str, str]:
        return {"flush_policy": "commit"}

    def stop(self) -> float:
        began = time.monotonic()
        self.broker.stop()
        return time.monotonic() - began


@dataclass(slots=True)
class Runnel:
    """`runnel serve` with its defaults."""

    name: str = "Runnel"
    settings: str = "runnel serve, defaults (page cache: flush.policy=never)"

    def launch(self, folder: Path, settings: Mapping[str, str] = DEFAULTS) -> RunnelRunning:
        return RunnelRunning(BrokerProcess(folder / "data", settings).start(START_TIMEOUT_S))


@dataclass(slots=True)
class KafkaRunning:
    process: subprocess.Popen[bytes]
    port: int
    started_in_s: float

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def waits_for_disk(self) -> dict[str, str]:
        return {"flush_messages": "1"}

    def stop(self) -> float:
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        return time.monotonic() - began


@dataclass(slots=True)
class Kafka:
    """Apache Kafka as one KRaft node, with the JVM flags of its own start script."""

    script: Path
    name: str = "Kafka"
    settings: str = "Apache Kafka 4.3.0, one KRaft node, G1, 1 GB heap, defaults (page cache: no fsync)"
    _template: Path | None = field(default=None)

    def launch(self, folder: Path, settings: Mapping[str, str] = DEFAULTS) -> KafkaRunning:
        # Formatting the storage is no part of starting: it is done once, and copied.
        if not (folder / "log").exists():
            shutil.copytree(self._formatted(folder.parent), folder, dirs_exist_ok=True)
        return self._start(folder, settings)

    def _start(self, folder: Path, settings: Mapping[str, str] = DEFAULTS) -> KafkaRunning:
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        began = time.monotonic()
        with (folder / "kafka.out").open("ab") as output:
            command = [str(self.script), str(folder), str(port)]
            environment = os.environ.copy()
            if settings:
                environment["PATH"] = f"{_java_with(folder, settings)}:{environment['PATH']}"
            process = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True, env=environment
            )
        try:
            while not answers(port):
                if process.poll() is not None or time.monotonic() - began > START_TIMEOUT_S:
                    raise RuntimeError(f"Kafka did not start:\n{(folder / 'kafka.out').read_text()[-2000:]}")
                time.sleep(0.01)
        except BaseException:
            process.kill()
            raise
        return KafkaRunning(process, port, time.monotonic() - began)

    def _formatted(self, scratch: Path) -> Path:
        if self._template is None:
            self._template = scratch / "kafka-formatted"
            self._start(self._template).stop()
        return self._template


def _java_with(folder: Path, settings: Mapping[str, str]) -> Path:
    """A folder with a `java` that gives Kafka settings which its start script has no place for."""
    real = shutil.which("java")
    overrides = " ".join(f"--override {key}={value}" for key, value in settings.items())
    program = folder / "java-with-settings" / "java"
    program.parent.mkdir(exist_ok=True)
    program.write_text(
        '#!/bin/sh\ncase " $* " in\n'
        f'*" kafka.Kafka "*) exec {real} "$@" {overrides} ;;\n*) exec {real} "$@" ;;\nesac\n'
    )
    program.chmod(0o755)
    return program.parent


@dataclass(slots=True)
class Meter:
    """CPU time that a broker spends between two looks."""

    pid: int
    _before: float = 0.0

    def __enter__(self) -> "Meter":
        self._before = cpu_seconds(self.pid)
        return self

    def __exit__(self, *_: object) -> None:
        self.spent_s = cpu_seconds(self.pid) - self._before

    spent_s: float = 0.0

    def memory_mb(self) -> float:
        return memory_bytes(self.pid) / 1e6

    def memory_peak_mb(self) -> float:
        return memory_peak_bytes(self.pid) / 1e6
