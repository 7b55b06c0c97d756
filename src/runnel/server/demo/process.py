"""A broker in a child process."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from runnel.server.cli.output import CommandError

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20.0
_LISTENING = re.compile(r"listening on (\S+)")
_CONSOLE = re.compile(r"console: (\S+)")


class BrokerProcess:
    """`runnel serve` in a child process; use as `with`."""

    def __init__(self, data_dir: Path, *, http: str = "off") -> None:
        """`http` is the address of a console, or off."""
        self.http = http
        self._data_dir = data_dir
        self._log = data_dir.parent / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.address = "127.0.0.1:0"

    def __enter__(self) -> "BrokerProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def start(self) -> float:
        """Start, on the previous port after a restart; returns the seconds until it listens."""
        began_s = time.perf_counter()
        command = [sys.executable, "-m", "runnel.server.cli", "serve"]
        command += ["--data-dir", str(self._data_dir), "--listen", self.address]
        command += ["--set", "group.initial.rebalance.delay.ms=0", "--http", self.http]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RUNNEL_")}
        with self._log.open("wb") as log:
            # A separate session: Ctrl-C reaches the demo only, which then stops the broker.
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        while True:
            found = _LISTENING.search(self._log.read_text(errors="replace"))
            if found:
                self.address = found[1]
                return time.perf_counter() - began_s
            if self._process.poll() is not None or time.perf_counter() - began_s > START_TIMEOUT_S:
                raise CommandError(
                    f"the broker did not start: {self._log.read_text(errors='replace').strip()}"
                )
            time.sleep(0.002)

    def console(self) -> str:
        """Wait for the console; returns its address."""
        assert self._process is not None
        deadline_s = time.perf_counter() + START_TIMEOUT_S
        while not (found := _CONSOLE.search(self._log.read_text(errors="replace"))):
            if self._process.poll() is not None or time.perf_counter() > deadline_s:
                raise CommandError("the console did not start")
            time.sleep(0.02)
        return found[1]

    def stop(self) -> int:
        """Shut down with SIGTERM; returns the exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Kill with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)

    def memory_bytes(self) -> int | None:
        """Resident memory of the broker, if the platform reports it."""
        assert self._process is not None
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return None
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(found[1]) * 1024 if found else None
