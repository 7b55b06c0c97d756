"""Runs nodes as child processes: starts them, restarts those that end, and stops them all at the end.

    starting ─► ready ─► ended: restarted after a pause ─► ready …
        └─► failed before it was ever ready: all are stopped, as its settings have to be corrected

The children hold the reading end of a pipe: when the supervisor ends, even by SIGKILL, they stop.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from tempfile import TemporaryFile
from typing import IO

from runnel.controller.config_broker import is_sensitive
from runnel.server.process import READY_PREFIX, SUPERVISOR_FD

RESTART_SECONDS_MIN = 0.1
RESTART_SECONDS_MAX = 10.0
STABLE_SECONDS = 30.0
"""A node that ran for this long is restarted after the shortest pause."""

STOP_SECONDS_MAX = 60.0
"""How long nodes may take to stop; then they are killed, and recover at their next start."""


class NodeFailed(Exception):
    """A node ended before it was ready; it has printed why."""


@dataclass(slots=True)
class Child:
    """A node to run."""

    static: Mapping[str, str]
    """Its settings."""
    address: str = ""
    """Its address for clients, once it is ready."""
    process: asyncio.subprocess.Process | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def node_id(self) -> str:
        """Its node id."""
        return self.static["node.id"]


class Supervisor:
    """The child processes of this machine."""

    def __init__(
        self,
        nodes: Sequence[Mapping[str, str]],
        *,
        log_level: str = "warning",
        log_format: str = "text",
        report: Callable[[str], None] = print,
    ) -> None:
        self.children = [Child(static) for static in nodes]
        self._log_options = ("--log-level", log_level, "--log-format", log_format)
        self._report = report
        self._is_stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._pipe = os.pipe()

    async def start(self) -> None:
        """Start all nodes; returns when all are ready. Raises NodeFailed, with all stopped."""
        self._tasks = [asyncio.create_task(self._run(child)) for child in self.children]
        ready = asyncio.create_task(self._all_ready())
        await asyncio.wait({ready, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
        failed = [task for task in self._tasks if task.done()]
        if failed:
            ready.cancel()
            await self.stop()
            await failed[0]

    def reload(self) -> None:
        """Let all nodes read certificates and keys again."""
        for child in self.children:
            _signal(child, signal.SIGHUP)

    async def _all_ready(self) -> None:
        for child in self.children:
            await child.ready.wait()

    async def stop(self) -> None:
        """Stop all nodes."""
        self._is_stopping = True
        for child in self.children:
            _signal(child, signal.SIGTERM)
        # A node that waits to be restarted is not running.
        for child, task in zip(self.children, self._tasks, strict=True):
            if child.process is None:
                task.cancel()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=STOP_SECONDS_MAX)
            if late:
                for child in self.children:
                    _signal(child, signal.SIGKILL)
                await asyncio.wait(late)
        for descriptor in self._pipe:
            os.close(descriptor)

    async def _run(self, child: Child) -> None:
        """Keep a node running."""
        loop = asyncio.get_running_loop()
        pause = RESTART_SECONDS_MIN
        while True:
            started_at = loop.time()
            code = await self._run_once(child)
            if self._is_stopping:
                return
            if not child.ready.is_set():
                raise NodeFailed(f"node {child.node_id} did not start (exit status {code})")
            if loop.time() - started_at > STABLE_SECONDS:
                pause = RESTART_SECONDS_MIN
            self._report(f"node {child.node_id} ended ({_ending(code)}), restarting it in {pause:g} s")
            await asyncio.sleep(pause)
            pause = min(2 * pause, RESTART_SECONDS_MAX)

    async def _run_once(self, child: Child) -> int:
        """Run a node until it ends; returns its exit status."""
        secrets = {name: value for name, value in child.static.items() if is_sensitive(name)}
        settings = [f"--set={name}={value}" for name, value in child.static.items() if name not in secrets]
        with _as_file(secrets) as file:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "runnel.server.cli", "serve", *self._log_options),
                # One console for all of them.
                *("--http", "off"),
                *settings,
                # The arguments of a process can be seen by all users of a machine.
                *([f"--config=/dev/fd/{file.fileno()}"] if secrets else []),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, SUPERVISOR_FD: str(self._pipe[0])},
                pass_fds=(self._pipe[0], file.fileno()),
                # Ctrl-C is for the supervisor, which then stops the nodes.
                start_new_session=True,
            )
        child.process = process
        if self._is_stopping:
            _signal(child, signal.SIGTERM)
        assert process.stdout is not None
        async for line in process.stdout:
            text = line.decode(errors="replace").strip()
            if text.startswith(READY_PREFIX):
                if child.ready.is_set():
                    self._report(f"node {child.node_id} is ready again")
                child.address = text.removeprefix(READY_PREFIX)
                child.ready.set()
        code = await process.wait()
        child.process = None
        return code


@contextmanager
def _as_file(settings: Mapping[str, str]) -> Iterator[IO[bytes]]:
    """Settings as a TOML file that has no name, and only the owner of the process can read."""
    # Strings of JSON are strings of TOML.
    quoted = partial(json.dumps, ensure_ascii=False)
    lines = [f"{quoted(name)} = {quoted(value)}\n" for name, value in settings.items()]
    with TemporaryFile() as file:
        file.write("".join(lines).encode())
        file.seek(0)
        yield file


def _signal(child: Child, number: signal.Signals) -> None:
    if child.process is not None and child.process.returncode is None:
        child.process.send_signal(number)


def _ending(code: int) -> str:
    return f"exit status {code}" if code >= 0 else signal.Signals(-code).name
