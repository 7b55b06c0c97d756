"""One node of Apache Kafka in KRaft mode, broker and controller in one process."""

import base64
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.broker_process import answers, free_port
from tools.kafka.commands import java, tool
from tools.settings import write_properties

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
HEAP = "1G"

JVM_FLAGS = (
    f"-Xmx{HEAP}",
    f"-Xms{HEAP}",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""What Kafka's own start script passes."""

QUICK_START = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""For a node that serves tests: it uses less CPU without the optimising compiler."""

ONE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
"""What a node on its own needs; everything else has Kafka's defaults."""


@dataclass(slots=True)
class KafkaNode:
    """A running node; `started_in_s` is the time from its start to its first response."""

    process: subprocess.Popen[bytes]
    port: int
    controller_port: int
    started_in_s: float

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> float:
        """Stop it with SIGTERM; the seconds that took."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        finally:
            self.process.kill()
            self.process.wait()
        return time.monotonic() - began


def start(
    folder: Path,
    settings: Mapping[str, str],
    formatting: tuple[str, ...] = (),
    flags: tuple[str, ...] = JVM_FLAGS,
    listeners: tuple[str, ...] = (),
) -> KafkaNode:
    """Start a node on free loopback ports; a folder that is new is formatted first, with these options.

    It has a PLAINTEXT listener, and further `listeners`, such as SASL_SSL://127.0.0.1:9094.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port, controller_port = free_port(), free_port()
    properties = folder / "server.properties"
    write_properties(properties, _properties(folder, port, controller_port, settings, listeners))
    log = folder / "log"
    if not (log / "meta.properties").exists():
        _format(properties, formatting)
    began = time.monotonic()
    output_path = folder / "kafka.out"
    with output_path.open("ab") as output:
        process = subprocess.Popen(
            java("kafka.Kafka", properties, flags=flags),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        while not answers(port):
            if process.poll() is not None or time.monotonic() - began > START_TIMEOUT_S:
                raise RuntimeError(f"Kafka did not start:\n{output_path.read_text()[-2000:]}")
            time.sleep(0.01)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return KafkaNode(process, port, controller_port, time.monotonic() - began)


def _properties(
    folder: Path, port: int, controller_port: int, settings: Mapping[str, str], listeners: tuple[str, ...]
) -> dict[str, str]:
    client = ",".join((f"PLAINTEXT://127.0.0.1:{port}", *listeners))
    controller = f"CONTROLLER://127.0.0.1:{controller_port}"
    return {
        **ONE_NODE,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"{client},{controller}",
        "advertised.listeners": client,
        "log.dirs": str(folder / "log"),
        **settings,
    }


def _format(properties: Path, options: tuple[str, ...]) -> None:
    # Kafka refuses an id that begins with a dash, which its tools would take for an option.
    cluster_id = "-"
    while cluster_id.startswith("-"):
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    command = tool("kafka-storage", "format", "-t", cluster_id, "-c", properties, *options)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"Kafka's storage could not be formatted:\n{done.stdout}{done.stderr}")
