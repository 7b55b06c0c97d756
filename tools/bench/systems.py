"""The two brokers that are compared, started the same way and measured from outside."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tools.broker_process import BrokerProcess
from tools.kafka import node
from tools.kafka.commands import VERSION
from tools.kafka.node import HEAP, KafkaNode
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

    def launch(
        self, folder: Path, settings: Mapping[str, str] = DEFAULTS, listeners: tuple[str, ...] = ()
    ) -> Running:
        """Start it with a PLAINTEXT listener and these."""
        ...


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

    def launch(
        self, folder: Path, settings: Mapping[str, str] = DEFAULTS, listeners: tuple[str, ...] = ()
    ) -> RunnelRunning:
        broker = BrokerProcess(folder / "data", settings, listeners=listeners)
        return RunnelRunning(broker.start(START_TIMEOUT_S))


@dataclass(slots=True)
class KafkaRunning:
    node: KafkaNode

    @property
    def port(self) -> int:
        return self.node.port

    @property
    def pid(self) -> int:
        return self.node.pid

    @property
    def started_in_s(self) -> float:
        return self.node.started_in_s

    @property
    def waits_for_disk(self) -> dict[str, str]:
        return {"flush_messages": "1"}

    def stop(self) -> float:
        return self.node.stop()


@dataclass(slots=True)
class Kafka:
    """Apache Kafka as one KRaft node, with the JVM flags of its own start script."""

    name: str = "Kafka"
    settings: str = (
        f"Apache Kafka {VERSION}, one KRaft node, G1, {HEAP} heap, defaults (page cache: no fsync)"
    )

    def launch(
        self, folder: Path, settings: Mapping[str, str] = DEFAULTS, listeners: tuple[str, ...] = ()
    ) -> KafkaRunning:
        return KafkaRunning(node.start(folder, settings, listeners=listeners))


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
