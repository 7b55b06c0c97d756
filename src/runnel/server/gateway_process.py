"""The gateway as a child process: started beside a broker, restarted if it ends, stopped first.

The parent opens the listening socket, so that an address that is taken is known at once, and connections wait
while the child is restarted. The child holds the reading end of a pipe: it ends with its parent, even by
SIGKILL. Nothing of the gateway is imported here: the broker's process stays as small as it is.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runnel.server.process import SUPERVISOR_FD

HTTP_DEFAULT = "127.0.0.1:8080"
OFF = "off"
BACKLOG = 512
PORT_MAX = 65535

READY_PREFIX = "console on "
"""The gateway prints this and its address when it serves."""

RESTART_SECONDS_MIN = 0.5
RESTART_SECONDS_MAX = 30.0
STABLE_SECONDS = 30.0
"""A gateway that ran for this long is restarted after the shortest pause."""

STOP_SECONDS_MAX = 6.0

log = logging.getLogger("runnel.server")


class HttpUnavailable(Exception):
    """The address for HTTP cannot be used; the message is shown to the user."""


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """The options of `runnel serve` for HTTP."""

    address: str | None = OFF
    """HOST:PORT, `off`, or None for the default, which is off if it is taken."""
    config: Path | None = None
    """Client properties of the gateway."""
    read_only: bool = False
    alerts: str | None = OFF
    """The file with the settings of alerts, `off`, or None for default settings."""
    role: str = "both"
    """The part of the HTTP API that is served: ingress, egress or both."""
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    """PEM files for HTTPS."""

    @property
    def is_off(self) -> bool:
        return self.address == OFF


def open_http(options: HttpOptions) -> socket.socket | None:
    """The listening socket; None if HTTP is off. Raises HttpUnavailable for a given address."""
    if options.is_off:
        return None
    address = options.address or HTTP_DEFAULT
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise HttpUnavailable(f"--http: {address!r} is neither HOST:PORT, such as {HTTP_DEFAULT}, nor off")
    try:
        return _listen(host.removeprefix("[").removesuffix("]"), int(port))
    except OSError as error:
        reason = error.strerror or str(error)
        if options.address is not None:
            raise HttpUnavailable(f"--http: cannot listen on {address}: {reason}") from None
        log.warning("no console: cannot listen on %s (%s); choose another with --http", address, reason)
        return None


def _listen(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def gateway_command(
    bootstrap: str, where: Sequence[str], *, protocol: str, options: HttpOptions, log_level: str
) -> list[str]:
    """The command of a gateway; `where` is `--fd N` or `--listen HOST:PORT`. Raises HttpUnavailable.

    `protocol` is that of the listener. With SASL, users log in with their own credentials.
    """
    command = [sys.executable, "-m", "runnel.gateway", "--bootstrap-server", bootstrap, *where]
    command += ["--log-level", log_level]
    if options.config is not None:
        command += ["--command-config", str(options.config)]
    elif protocol in ("SSL", "SASL_SSL"):
        raise HttpUnavailable(
            f"no console: the listener at {bootstrap} uses TLS; give the client properties with --http-config"
        )
    elif protocol != "PLAINTEXT":
        command += ["--command-property", f"security.protocol={protocol}"]
    if options.read_only:
        command.append("--read-only")
    if options.alerts is not None:
        command += ["--alerts", options.alerts]
    command += ["--role", options.role]
    if options.tls_certificate is not None:
        command += ["--tls-cert", str(options.tls_certificate)]
    if options.tls_key is not None:
        command += ["--tls-key", str(options.tls_key)]
    return command


class GatewayProcess:
    """A gateway that is kept running."""

    def __init__(
        self, listening: socket.socket, command: Sequence[str], report: Callable[[str], None] = print
    ) -> None:
        self._listening = listening
        self._command = command
        self._report = report
        self._pipe = os.pipe()
        self._process: asyncio.subprocess.Process | None = None
        self._is_stopping = False
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop it, and close its socket."""
        self._is_stopping = True
        if self._process is None:
            self._task.cancel()
        else:
            self._signal(signal.SIGTERM)
        _, late = await asyncio.wait({self._task}, timeout=STOP_SECONDS_MAX)
        if late:
            self._signal(signal.SIGKILL)
            await asyncio.wait(late)
        self._listening.close()
        for descriptor in self._pipe:
            os.close(descriptor)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        pause = RESTART_SECONDS_MIN
        while True:
            started_at = loop.time()
            code = await self._run_once()
            if self._stops():
                return
            if loop.time() - started_at > STABLE_SECONDS:
                pause = RESTART_SECONDS_MIN
            log.warning("the gateway ended (status %s), restarting it in %g s", code, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, RESTART_SECONDS_MAX)

    async def _run_once(self) -> int:
        descriptor = self._listening.fileno()
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, SUPERVISOR_FD: str(self._pipe[0])},
            pass_fds=(descriptor, self._pipe[0]),
            # Ctrl-C is for the parent, which then stops its child.
            start_new_session=True,
        )
        self._process = process
        if self._is_stopping:
            self._signal(signal.SIGTERM)
        assert process.stdout is not None
        async for line in process.stdout:
            text = line.decode(errors="replace").strip()
            if text.startswith(READY_PREFIX):
                self._report(f"console: {text.removeprefix(READY_PREFIX)}")
        code = await process.wait()
        self._process = None
        return code

    def _stops(self) -> bool:
        return self._is_stopping

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)


def start_gateway(
    listening: socket.socket | None, bootstrap: str, *, protocol: str, options: HttpOptions, log_level: str
) -> GatewayProcess | None:
    """Start a gateway on a socket; None if there is none, or the listener cannot be used without more."""
    if listening is None:
        return None
    where = ["--fd", str(listening.fileno())]
    try:
        command = gateway_command(bootstrap, where, protocol=protocol, options=options, log_level=log_level)
    except HttpUnavailable as error:
        listening.close()
        if options.address is not None:
            raise
        log.warning("%s", error)
        return None
    return GatewayProcess(listening, command, lambda text: print(text, flush=True))
