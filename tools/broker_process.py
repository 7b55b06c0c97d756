"""A Runnel broker as its users run it: a process, to be stopped, killed and restarted."""

import contextlib
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from runnel.server.ports import free_ports

API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)


def free_port() -> int:
    """A loopback port for a process that is started later, or again."""
    return free_ports("127.0.0.1", 1)[0]


def answers(
    port: int, timeout_s: float = 2.0, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> bool:
    """Whether a broker on this port answers ApiVersions."""
    try:
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection((host, port), timeout=timeout_s))
            if tls is not None:
                connection = stack.enter_context(tls.wrap_socket(connection, server_hostname=host))
            connection.sendall(API_VERSIONS_REQUEST)
            return len(connection.recv(8)) == 8
    except OSError:
        return False


class BrokerProcess:
    """One `runnel serve` over one data folder; the port stays the same across restarts."""

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, str] | None = None,
        log_path: Path | None = None,
        listeners: tuple[str, ...] = (),
    ) -> None:
        self.data_dir = data_dir
        self.settings = dict(settings or {})
        self.listeners = listeners
        """Listeners besides that without protection, such as SASL_PLAINTEXT://127.0.0.1:9094."""
        self.host = "127.0.0.1"
        self.port = free_port()
        self.environment: dict[str, str] = {}
        """Variables of the process besides those of this one."""
        self.log_path = log_path or data_dir.with_name(data_dir.name + ".log")
        self.process: subprocess.Popen[bytes] | None = None
        self.started_in_s = 0.0

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def tls(self) -> ssl.SSLContext | None:
        """The TLS with which the broker is asked whether it answers; None for clear text."""
        return None

    def command(self) -> list[str]:
        sets = [part for key, value in self.settings.items() for part in ("--set", f"{key}={value}")]
        serve = ["serve", "--data-dir", str(self.data_dir), "--http", "off"]
        if self.listeners:
            serve += ["--set", "listeners=" + ",".join((f"PLAINTEXT://{self.bootstrap}", *self.listeners))]
        elif "listeners" not in self.settings:
            serve += ["--listen", self.bootstrap]
        return [str(Path(sys.executable).with_name("runnel")), *serve, *sets]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The process is paused meanwhile, with no system call in progress in any of its threads."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            while not all(state == "T" for state in self._thread_states()):
                time.sleep(0.001)
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def _thread_states(self) -> list[str]:
        stats = [path.read_text() for path in Path(f"/proc/{self.pid}/task").glob("*/stat")]
        # The state follows the program's name, which is in brackets and may contain anything.
        return [stat.rpartition(")")[2].split()[0] for stat in stats]

    def launch(self) -> None:
        """Start the process without waiting for it."""
        assert self.process is None
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start(self, timeout_s: float = 60.0) -> "BrokerProcess":
        """Start the process and wait until it answers a client."""
        began = time.monotonic()
        self.launch()
        try:
            self.wait_until_answering(timeout_s)
        except BaseException:
            # The caller has no handle to the process yet.
            self.kill()
            raise
        self.started_in_s = time.monotonic() - began
        return self

    def wait_until_answering(self, timeout_s: float = 60.0) -> None:
        assert self.process is not None
        deadline = time.monotonic() + timeout_s
        while not answers(self.port, host=self.host, tls=self.tls()):
            if self.process.poll() is not None:
                raise RuntimeError(f"the broker ended with {self.process.returncode}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"no answer from the broker after {timeout_s} s:\n{self.log_tail()}")
            time.sleep(0.01)

    def kill(self) -> None:
        """kill -9: no clean shutdown."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def stop(self, timeout_s: float = 60.0) -> int:
        """SIGTERM, and the exit code."""
        assert self.process is not None
        self.process.terminate()
        try:
            return self.process.wait(timeout_s)
        finally:
            self.kill()

    def log_tail(self, characters: int = 3000) -> str:
        return self.log_path.read_text(errors="replace")[-characters:] if self.log_path.exists() else ""

    def __enter__(self) -> "BrokerProcess":
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.stop()
