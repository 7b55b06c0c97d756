"""A real Spark cluster on loopback: a master, workers, and whatever they start."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from runnel.pipelines.jvm import java_home

START_S = 180
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"
_PYTHON_WORKER = b"pyspark.daemon"


_END_WITH_PARENT = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def ending_with_us(program: str | Path, *arguments: str) -> list[str]:
    """A command whose process ends with the thread that starts it, also where no `finally` is reached."""
    return [sys.executable, "-c", _END_WITH_PARENT, str(os.getpid()), str(program), *arguments]


class Cluster:
    """A standalone master and its workers, each with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def start(self, workers: int) -> None:
        """Start all and return when the workers have registered."""
        log = self._start_daemon("master", _MASTER)
        self.master = self._wait_for(log, r"Starting Spark master at (spark://\S+)")
        logs = [
            self._start_daemon(f"worker-{number}", _WORKER, "--cores", "1", "--memory", "700m", self.master)
            for number in range(workers)
        ]
        for log in logs:
            self._wait_for(log, r"(Successfully registered with master)")

    def executors(self) -> list[int]:
        """The processes that run tasks."""
        return self._processes(_EXECUTOR)

    def python_workers(self) -> list[int]:
        """The processes in which the Python of tasks runs, and those that fork them."""
        executors = set(self.executors())
        return [pid for pid in _descendants(executors) if _PYTHON_WORKER in _command_line(pid)]

    def stop(self) -> None:
        """End everything at once: executors are of their worker's group."""
        for daemon in self._daemons:
            with suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGKILL)
        for daemon in self._daemons:
            daemon.wait()

    def _processes(self, mark: bytes) -> list[int]:
        groups = {daemon.pid for daemon in self._daemons}
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                pid = int(folder.name)
                if mark in _command_line(pid) and os.getpgid(pid) in groups:
                    found.append(pid)
        return found

    def _start_daemon(self, name: str, *arguments: str) -> Path:
        folder = self._folder / name
        folder.mkdir(parents=True)
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            # A program is not given up because its executors were killed often.
            "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder),
            "SPARK_WORKER_DIR": str(folder / "work"),
            "SPARK_CONF_DIR": str(folder),
        }
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        where = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        log = folder / "log"
        with log.open("wb") as output:
            command = ending_with_us(program, arguments[0], *where, *arguments[1:])
            self._daemons.append(
                subprocess.Popen(
                    command,
                    stdout=output,
                    stderr=output,
                    cwd=folder,
                    env=environment,
                    start_new_session=True,
                )
            )
        return log

    def _wait_for(self, log: Path, pattern: str) -> str:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            found = re.search(pattern, log.read_text(errors="replace"))
            if found:
                return found[1]
            if any(daemon.poll() is not None for daemon in self._daemons):
                break
            time.sleep(0.1)
        raise RuntimeError(f"no {pattern!r} in:\n{log.read_text(errors='replace')[-5000:]}")


@contextmanager
def running_cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """A cluster that is removed at the end, whatever happens."""
    cluster = Cluster(folder)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.stop()


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _descendants(ancestors: set[int]) -> set[int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    family, found = set[int](), ancestors
    while found:
        family |= found
        found = {child for child, parent in parents.items() if parent in family} - family
    return family - ancestors
