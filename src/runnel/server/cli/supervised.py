"""Run several nodes in the foreground, until Ctrl-C or SIGTERM."""

import asyncio
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

from runnel.controller.settings import Settings
from runnel.server.cli.output import CommandError
from runnel.server.cli.serve import open_console
from runnel.server.cli.session import run
from runnel.server.cli.stop_signals import stop_signal
from runnel.server.gateway_process import GatewayProcess, HttpOptions, HttpUnavailable, start_gateway
from runnel.server.process import READY_PREFIX
from runnel.server.roles import roles_of
from runnel.server.supervisor import NodeFailed, Supervisor


def run_nodes(
    nodes: Sequence[Mapping[str, str]], log_level: str, http: HttpOptions, log_format: str = "text"
) -> None:
    """Start nodes as processes of their own, print their addresses, and stop them at the end."""
    run(_run_nodes(nodes, log_level, http, log_format))


async def _run_nodes(
    nodes: Sequence[Mapping[str, str]], log_level: str, http: HttpOptions, log_format: str
) -> None:
    # After a second Ctrl-C the nodes stop by themselves.
    stop = stop_signal()
    listening = open_console(http)
    gateway: GatewayProcess | None = None
    supervisor = Supervisor(nodes, log_level=log_level, log_format=log_format, report=_report)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, supervisor.reload)
    starting = asyncio.create_task(supervisor.start())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if stopping.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
    else:
        await _serve(starting, supervisor)
        gateway = _start_console(supervisor, listening, http, log_level)
        await stopping
    if gateway is not None:
        await gateway.stop()
    await supervisor.stop()
    print("stopped", flush=True)


async def _serve(starting: "asyncio.Task[None]", supervisor: Supervisor) -> None:
    try:
        await starting
    except NodeFailed as failure:
        raise CommandError(str(failure)) from None
    print(READY_PREFIX + ",".join(child.address for child in supervisor.children), flush=True)
    for child in supervisor.children:
        print(f"node {child.node_id}: {child.address}, data directory {child.static['log.dirs']}", flush=True)
    print("press Ctrl-C to stop", flush=True)


def _start_console(
    supervisor: Supervisor, listening: socket.socket | None, http: HttpOptions, log_level: str
) -> GatewayProcess | None:
    roles = roles_of(Settings(supervisor.children[0].static))
    protocol = roles.protocols[roles.broker_listeners[0].name].name
    addresses = ",".join(child.address for child in supervisor.children)
    try:
        return start_gateway(listening, addresses, protocol=protocol, options=http, log_level=log_level)
    except HttpUnavailable as error:
        _report(str(error))
        return None


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
