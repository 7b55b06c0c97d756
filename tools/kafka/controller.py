"""One controller of Apache Kafka, as a member of a quorum whose other members may be something else."""

import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.broker_process import answers
from tools.kafka.commands import java, tool
from tools.settings import write_properties

START_TIMEOUT_S = 120.0


@dataclass(slots=True)
class KafkaController:
    """A controller in a folder; `first` is how its folder is formatted, as an option of kafka-storage."""

    folder: Path
    node_id: int
    port: int
    cluster_id: str
    settings: Mapping[str, str]
    first: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def output(self) -> str:
        """What it logged."""
        return (self.folder / "kafka.out").read_text()

    @property
    def directory_id(self) -> str:
        """The directory id, as its tools print it."""
        for line in (self.folder / "log" / "meta.properties").read_text().splitlines():
            name, _, value = line.partition("=")
            if name == "directory.id":
                return value
        raise LookupError("meta.properties has no directory.id")

    def start(self) -> None:
        """Start the process, and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = self.folder / "server.properties"
        lines = {
            "process.roles": "controller",
            "node.id": str(self.node_id),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://127.0.0.1:{self.port}",
            "log.dirs": str(self.folder / "log"),
            **self.settings,
        }
        write_properties(properties, lines)
        if not (self.folder / "log" / "meta.properties").exists():
            command = tool("kafka-storage", "format", "-t", self.cluster_id, "-c", properties, *self.first)
            subprocess.run(command, capture_output=True, check=True, timeout=START_TIMEOUT_S)
        with (self.folder / "kafka.out").open("ab") as output:
            self.process = subprocess.Popen(java("kafka.Kafka", properties), stdout=output, stderr=output)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers(self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the controller did not start:\n{self.output[-2000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
