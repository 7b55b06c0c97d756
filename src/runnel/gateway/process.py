"""The gateway's process: a web server on its own event loop, which ends with its parent."""

import asyncio
import logging
import os
import resource
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import FrameType

import uvicorn

from runnel.client.errors import ClientError
from runnel.client.loop_thread import fastest_loop
from runnel.gateway.alerts.evaluator import Evaluator, EvaluatorOptions
from runnel.gateway.alerts.evaluator import run as evaluate_alerts
from runnel.gateway.app import Gateway
from runnel.gateway.certificate import Certificate
from runnel.gateway.http.limits import LINE_BYTES_MAX
from runnel.gateway.options import FAILED, GatewayOptions
from runnel.gateway.protocols import HttpProtocol, SocketProtocol
from runnel.gateway.tracing import Tracing, tracing_of

READY_PREFIX = "console on "
"""Printed with the address once requests are accepted."""

PARENT_FD = "RUNNEL_SUPERVISOR_FD"
"""The environment variable with a descriptor that is closed when the parent process ends."""

log = logging.getLogger("runnel.gateway")

STOP_SECONDS = 3
KEEP_ALIVE_SECONDS = 30
BACKLOG = 512
EVALUATE_AGAIN_S = 30.0
"""The pause before alerts are evaluated again after a failure."""


class LineFormatter(logging.Formatter):
    """Messages on one line: names in them are chosen by strangers, who must not forge others."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, before what is said of an exception."""
        record.message = "".join(
            each if each.isprintable() else each.encode("unicode_escape").decode() for each in record.message
        )
        return super().formatMessage(record)


def run(
    options: GatewayOptions,
    *,
    address: tuple[str, int] | None = None,
    descriptor: int | None = None,
    log_level: str = "warning",
) -> int:
    """Serve on an address, or on a socket that the parent process has opened; returns the exit status."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=log_level.upper(), handlers=[handler])
    _raise_descriptor_limit()
    try:
        listening = socket.socket(fileno=descriptor) if address is None else open_socket(*address)
    except OSError as error:
        where = "the given socket" if address is None else f"{address[0]}:{address[1]}"
        print(f"error: cannot listen on {where}: {error.strerror or error}", file=sys.stderr)
        return FAILED
    try:
        check_certificate(options)
    except (OSError, ssl.SSLError) as error:
        print(f"error: the certificate or key for HTTPS cannot be used: {error}", file=sys.stderr)
        return FAILED
    with asyncio.Runner(loop_factory=fastest_loop) as runner:
        runner.run(_serve(options, listening, _tracing()))
    return 0


def check_certificate(options: GatewayOptions) -> None:
    """Raise an error unless the files of a certificate and its key fit together, if there are any."""
    if options.tls_certificate is not None:
        Certificate(options.tls_certificate, options.tls_key)


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def url_of(listening: socket.socket, *, has_tls: bool = False) -> str:
    """The address of the console for a browser on this machine."""
    host, port = listening.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    scheme = "https" if has_tls else "http"
    return f"{scheme}://[{shown}]:{port}/" if ":" in shown else f"{scheme}://{shown}:{port}/"


class WebServer(uvicorn.Server):
    """uvicorn, which tells when it is ready and ends streams before it waits for requests."""

    def __init__(self, gateway: Gateway, listening: socket.socket) -> None:
        options = gateway.options
        super().__init__(
            uvicorn.Config(
                gateway,
                http=HttpProtocol,
                ws=SocketProtocol,
                ws_max_size=LINE_BYTES_MAX,
                ws_per_message_deflate=False,
                ssl_certfile=options.tls_certificate,
                ssl_keyfile=options.tls_key,
                loop="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=STOP_SECONDS,
            )
        )
        self._gateway = gateway
        self._listening = listening
        self._loop = asyncio.get_running_loop()
        self._watching: asyncio.Task[None] | None = None
        self.ready = asyncio.Event()

    async def run(self) -> None:  # type: ignore[override]  # ours has an event loop already
        """Serve until `stop`, SIGTERM or Ctrl-C."""
        try:
            await self.serve(sockets=[self._listening])
        finally:
            if self._watching is not None:
                self._watching.cancel()
            await self._gateway.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Announces the address once requests are accepted."""
        options, context = self._gateway.options, self.config.ssl
        if options.tls_certificate is not None and context is not None:
            certificate = Certificate(options.tls_certificate, options.tls_key)
            certificate.install(context)
            self._watching = asyncio.create_task(certificate.watch())
        await super().startup(sockets)
        self._gateway.start()
        self.ready.set()

    def stop(self) -> None:
        """Stop; requests in flight are completed, streams end."""
        self._gateway.stop_streams()
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by a signal."""
        self._loop.call_soon_threadsafe(self._gateway.stop_streams)
        super().handle_exit(sig, frame)
        # uvicorn raises them again, which would end the process before the gateway is closed.
        self._captured_signals.clear()


def _tracing() -> Tracing:
    try:
        return tracing_of()
    except ImportError as error:
        log.warning("no traces: %s; pip install 'runnel[otel]'", error)
        return Tracing()


async def _serve(options: GatewayOptions, listening: socket.socket, tracing: Tracing) -> None:
    server = WebServer(Gateway(options, tracing), listening)
    if PARENT_FD in os.environ:
        # Readable means closed: nothing is ever written to it.
        asyncio.get_running_loop().add_reader(int(os.environ[PARENT_FD]), _stop, server)
    url = url_of(listening, has_tls=options.tls_certificate is not None)
    announcing = asyncio.create_task(_announce(server, url))
    try:
        async with _evaluated(options):
            await server.run()
    finally:
        announcing.cancel()


@asynccontextmanager
async def _evaluated(options: GatewayOptions) -> AsyncIterator[None]:
    """Evaluate alerts meanwhile, unless that is off."""
    if options.alerts is None:
        yield
        return
    settings, receivers = options.alerts
    evaluating = Evaluating(EvaluatorOptions(options.bootstrap, options.properties, settings, receivers))
    task = asyncio.create_task(evaluating.run())
    try:
        yield
    finally:
        evaluating.stop()
        await task


class Evaluating:
    """An evaluator that is started again after a failure: the console is served without it meanwhile."""

    def __init__(self, options: EvaluatorOptions) -> None:
        self._options = options
        self._evaluator: Evaluator | None = None
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """End `run`."""
        self._stopped.set()
        if self._evaluator is not None:
            self._evaluator.stop()

    async def run(self) -> None:
        """Evaluate until `stop` is called."""
        while not self._stopped.is_set():
            self._evaluator = Evaluator(self._options)
            try:
                await evaluate_alerts(self._evaluator)
            except ClientError as error:
                # Permissions are missing, for example: they may be granted.
                log.warning("alerts are not evaluated: %s", error)
            except Exception:
                log.exception("alerts are not evaluated")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), EVALUATE_AGAIN_S)


async def _announce(server: WebServer, url: str) -> None:
    await server.ready.wait()
    print(f"{READY_PREFIX}{url}", flush=True)


def _stop(server: WebServer) -> None:
    asyncio.get_running_loop().remove_reader(int(os.environ[PARENT_FD]))
    server.stop()


def _raise_descriptor_limit() -> None:
    """Every stream is a descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
