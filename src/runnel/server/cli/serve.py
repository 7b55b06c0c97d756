"""`runnel serve`: run a broker in the foreground."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.server.cli.options import Settings, parse_settings

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Mapping

    from runnel.server.gateway_process import GatewayProcess, HttpOptions
    from runnel.server.node import Node

DATA_DIR_DEFAULT = "runnel-data"
LISTEN_DEFAULT = "127.0.0.1:9092"
PORT_MAX = 65535


class LogLevel(StrEnum):
    """Log levels."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How log messages are written."""

    TEXT = "text"
    JSON = "json"


DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        "-d",
        envvar="RUNNEL_DATA_DIR",
        help=f"Data directory. Default: ./{DATA_DIR_DEFAULT}.",
    ),
]
Listen = Annotated[
    str | None,
    typer.Option(
        "--listen",
        "-l",
        envvar="RUNNEL_LISTEN",
        metavar="HOST:PORT",
        help=f"Listener address. Default: {LISTEN_DEFAULT}. Port 0 picks a free port.",
    ),
]
NodeId = Annotated[
    int | None,
    typer.Option("--node-id", envvar="RUNNEL_NODE_ID", min=0, help="Node id of the broker. Default: 1."),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar="RUNNEL_CONFIG",
        help="Settings by their Kafka names: a server.properties of Kafka, or TOML.",
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        "--workers",
        envvar="RUNNEL_WORKERS",
        min=1,
        help="Number of brokers on this host, one per core: ids, ports and data directories in sequence.",
    ),
]
AdminOption = Annotated[
    str | None,
    typer.Option(
        "--admin",
        envvar="RUNNEL_ADMIN",
        metavar="HOST:PORT|off",
        help="Address of metrics and health checks (HTTP). Default: 127.0.0.1:9644, if that port is free.",
    ),
]
LogFormatOption = Annotated[
    LogFormat, typer.Option(envvar="RUNNEL_LOG_FORMAT", help="Format of the log on standard error.")
]
Http = Annotated[
    str | None,
    typer.Option(
        "--http",
        envvar="RUNNEL_HTTP",
        metavar="HOST:PORT|off",
        help="Address of the HTTP API and the console. Default: 127.0.0.1:8080, unless it is taken.",
    ),
]
HttpConfig = Annotated[
    Path | None,
    typer.Option(
        "--http-config",
        envvar="RUNNEL_HTTP_CONFIG",
        metavar="FILE",
        help="Client properties with which the console connects, such as a trust store.",
    ),
]
HttpReadOnly = Annotated[
    bool,
    typer.Option(
        "--http-read-only",
        envvar="RUNNEL_HTTP_READ_ONLY",
        help="Reject all changes in the console and the HTTP API.",
    ),
]
HttpTlsCert = Annotated[
    Path | None,
    typer.Option(
        "--http-tls-cert",
        envvar="RUNNEL_HTTP_TLS_CERT",
        metavar="FILE",
        help="Certificate chain (PEM): console and HTTP API are served over HTTPS.",
    ),
]
HttpTlsKey = Annotated[
    Path | None,
    typer.Option(
        "--http-tls-key",
        envvar="RUNNEL_HTTP_TLS_KEY",
        metavar="FILE",
        help="Private key (PEM) of the certificate. Default: in the file of the certificate.",
    ),
]
Alerts = Annotated[
    str | None,
    typer.Option(
        "--alerts",
        envvar="RUNNEL_ALERTS",
        metavar="FILE|off",
        help="Settings and receivers of alerts, evaluated beside the console. Default: no receivers.",
    ),
]
LogLevelOption = Annotated[
    LogLevel, typer.Option(envvar="RUNNEL_LOG_LEVEL", help="Log level on standard error.")
]


def serve(
    data_dir: DataDir = None,
    listen: Listen = None,
    node_id: NodeId = None,
    settings: Settings = None,
    config: Config = None,
    workers: Workers = 1,
    admin: AdminOption = None,
    http: Http = None,
    http_config: HttpConfig = None,
    http_read_only: HttpReadOnly = False,
    http_tls_cert: HttpTlsCert = None,
    http_tls_key: HttpTlsKey = None,
    alerts: Alerts = None,
    log_level: LogLevelOption = LogLevel.WARNING,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Run a broker until Ctrl-C or SIGTERM. SIGHUP reloads certificates and keys.

    Precedence, lowest first: --config, environment (RUNNEL_SET_LOG_RETENTION_HOURS=24), --set, other options.

    Example: runnel serve

    Example: runnel serve --data-dir data --listen 0.0.0.0:9092 --set log.retention.hours=24

    Example: runnel serve --config server.properties

    Example: runnel serve --workers 4

    Example: runnel serve --admin 0.0.0.0:9644 --log-format json
    """
    from runnel.controller.config_broker_node import ADMIN_LISTENERS
    from runnel.server.gateway_process import HttpOptions
    from runnel.server.log_format import configure_logging

    configure_logging(log_level, is_json=log_format is LogFormat.JSON)
    static = static_options(data_dir, listen, node_id, settings, config)
    if admin is not None:
        static[ADMIN_LISTENERS] = admin
    http_options = HttpOptions(http, http_config, http_read_only, alerts, "both", http_tls_cert, http_tls_key)
    if workers > 1:
        from runnel.server.cli.supervised import run_nodes
        from runnel.server.local_nodes import worker_settings

        run_nodes(worker_settings(static, workers), log_level, http_options, log_format)
    else:
        from runnel.server.cli.session import run

        run(_serve(static, http_options, log_level))


def static_options(
    data_dir: Path | None,
    listen: str | None,
    node_id: int | None,
    settings: list[str] | None,
    config: Path | None,
) -> dict[str, str]:
    """The static settings that the options of `runnel serve` and the environment describe."""
    import os

    from runnel.server.layers import static_settings

    parse_settings(settings)
    static = static_settings(config, os.environ, settings or [])
    if data_dir is not None:
        static.pop("log.dir", None)
        static["log.dirs"] = str(data_dir)
    elif "log.dirs" not in static and "log.dir" not in static:
        static["log.dirs"] = DATA_DIR_DEFAULT
    if listen is not None or "listeners" not in static:
        static["listeners"] = _listener(listen or LISTEN_DEFAULT)
    if node_id is not None:
        static.pop("broker.id", None)
        static["node.id"] = str(node_id)
    return static


def _listener(address: str) -> str:
    if "://" in address:
        return address
    _, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > PORT_MAX:
        raise typer.BadParameter(
            f"{address!r} is not HOST:PORT, such as {LISTEN_DEFAULT}", param_hint="--listen"
        )
    return f"PLAINTEXT://{address}"


async def _serve(static: "Mapping[str, str]", http: "HttpOptions", log_level: str) -> None:
    import asyncio
    import os

    from runnel.server.cli.stop_signals import reload_signal, stop_signal
    from runnel.server.local_nodes import check_folders
    from runnel.server.node import Node
    from runnel.server.permissions import UMASK
    from runnel.server.process import (
        READY_PREFIX,
        SUPERVISOR_FD,
        bound_garbage_collection,
        raise_descriptor_limit,
    )

    # After a second Ctrl-C the next start runs recovery.
    stop = stop_signal()
    if SUPERVISOR_FD in os.environ:
        _stop_with_supervisor(int(os.environ[SUPERVISOR_FD]), stop)
    else:
        check_folders(os.path.abspath(static.get("log.dirs", static.get("log.dir", ""))), 1)
    raise_descriptor_limit()
    os.umask(UMASK)
    node = Node(static)
    listening = open_console(http)
    reload_signal(node.reload)
    starting = asyncio.create_task(_start(node))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if stopping.done() and not starting.done():
        # A node may wait for others for long.
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return
    await starting
    bound_garbage_collection()
    _report(
        f"{READY_PREFIX}{node.bootstrap_servers}",
        f"data directory: {node.data_dir}",
        "press Ctrl-C to stop",
    )
    gateway = _start_console(node, listening, http, log_level)
    await stop.wait()
    if gateway is not None:
        await gateway.stop()
    await node.stop()
    _report("stopped")


def _report(*lines: str) -> None:
    from contextlib import suppress

    # A supervisor that was killed reads no more; the node still has to stop cleanly.
    with suppress(BrokenPipeError):
        print(*lines, sep="\n", flush=True)


def open_console(http: "HttpOptions") -> "socket.socket | None":
    """The socket of the console; an explicit address that cannot be used prevents the start."""
    from runnel.server.cli.output import CommandError
    from runnel.server.gateway_process import HttpUnavailable, open_http

    try:
        return open_http(http)
    except HttpUnavailable as error:
        raise CommandError(str(error)) from None


def _start_console(
    node: "Node", listening: "socket.socket | None", http: "HttpOptions", log_level: str
) -> "GatewayProcess | None":
    from runnel.server.gateway_process import HttpUnavailable, start_gateway

    try:
        return start_gateway(
            listening if node.roles.is_broker else None,
            node.bootstrap_servers,
            protocol=node.protocol,
            options=http,
            log_level=log_level,
        )
    except HttpUnavailable as error:
        import logging

        # The broker serves already, and continues without a console.
        logging.getLogger("runnel.server").warning("%s", error)
        return None


def _stop_with_supervisor(descriptor: int, stop: "asyncio.Event") -> None:
    import asyncio

    loop = asyncio.get_running_loop()

    def ended() -> None:
        loop.remove_reader(descriptor)
        stop.set()

    # Readable means closed: nothing is ever written to it.
    loop.add_reader(descriptor, ended)


async def _start(node: "Node") -> None:
    from runnel.server.cli.output import CommandError

    try:
        await node.start()
    except BlockingIOError:
        raise CommandError(f"another broker is using the data directory {node.data_dir}") from None
    except OSError as error:
        raise CommandError(
            f"cannot use the data directory {node.data_dir}: {error.strerror or error}"
        ) from error
