"""`runnel gateway` as its users run it: a process on a fixed port, to be stopped, killed and restarted."""

import os
import signal
import subprocess
import sys
from typing import Self

from runnel.server.process import SUPERVISOR_FD
from tools.broker_process import free_port

STOP_TIMEOUT_S = 30.0


class GatewayProcess:
    """One gateway of a cluster; it ends with this process."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.port = free_port()
        self._parent = os.pipe()
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Start it, and wait until it serves."""
        command = [sys.executable, "-m", "runnel.gateway", "--bootstrap-server", self._bootstrap]
        command += ["--listen", f"127.0.0.1:{self.port}", "--alerts", "off"]
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=(self._parent[0],),
            env={**os.environ, SUPERVISOR_FD: str(self._parent[0])},
        )
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError(f"the gateway ended with {self._process.wait()}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it with a signal."""
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        finally:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.end()
        finally:
            for descriptor in self._parent:
                os.close(descriptor)
