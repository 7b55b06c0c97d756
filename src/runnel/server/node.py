"""A broker in this process: wiring, start and stop.

start: data directory → metadata → partitions → coordinators → accept        stop: in reverse order
"""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType

from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.pipeline import Pipeline
from runnel.broker.runtime.running import start_broker
from runnel.controller.config_types import parse_address_counts
from runnel.controller.settings import Settings
from runnel.disk.cleaner import Cleaner
from runnel.disk.data_directory import DataDirectory
from runnel.disk.os_files import OsFiles
from runnel.disk.upkeep import UpkeepIntervals
from runnel.disk.workers import LoopWorkers
from runnel.model.limits import RECEIVE_MEMORY_BYTES_MAX
from runnel.net.listener import Listener, ListenerLimits
from runnel.server.addresses import Address, advertised_address, listen_address
from runnel.server.layers import BadSettings
from runnel.server.loop_probe import LoopProbe
from runnel.server.shells import LoopTimers, SystemClock, SystemEntropy

WRITE_THREADS = 2
"""Large writes are copies into the page cache with the GIL released: two threads keep two cores busy."""

READ_THREADS = 2
"""Readers of data that is not in the page cache: more would only queue at the disk instead."""

SYNC_THREADS = 4
"""Concurrent fdatasync calls; more would queue in the kernel."""

UPKEEP_INTERVAL_MS = 500
"""Interval between checks for due maintenance work."""

log = logging.getLogger("runnel.server")


class Node:
    """A broker; `async with Node({...}) as node` serves at `node.address` until the block ends."""

    def __init__(self, static: Mapping[str, str] | None = None) -> None:
        """Validate the settings without side effects. Raises BadSettings or BadConfig."""
        self.settings = Settings(static)
        for name in self.settings.ignored:
            log.warning("Kafka setting %s has no effect in Runnel", name)
        folders = self.settings.words("log.dirs") or [self.settings.text("log.dir") or ""]
        if len(folders) != 1:
            raise BadSettings(f"exactly one data directory is supported, not {','.join(folders)}")
        self.data_dir = os.path.abspath(folders[0])
        protocols = self.settings.text("listener.security.protocol.map") or ""
        self._listen = listen_address(self.settings.words("listeners"), protocols)
        self.address = self._listen
        """The advertised address; its port is known once started."""
        self._stack = AsyncExitStack()
        self._listener: Listener | None = None
        self._cleaner: Cleaner | None = None
        self.settings.subscribe(self._settings_changed)

    @property
    def port(self) -> int:
        """The port of the listener."""
        return self._listen.port

    @property
    def bootstrap_servers(self) -> str:
        """Value for a client's bootstrap.servers."""
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        return f"{host}:{self.address.port}"

    async def start(self) -> None:
        """Start; on return the broker accepts requests. On failure everything opened is closed again."""
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()

    async def _start(self, stack: AsyncExitStack) -> None:
        clock, entropy = SystemClock(), SystemEntropy()
        disk = self._open_disk(stack, clock, entropy)
        broker = Broker(
            node_id=self.settings.int("node.id"),
            cluster_id="",
            host="",
            port=0,
            clock=clock,
            timers=LoopTimers(asyncio.get_running_loop()),
            disk=disk,
            entropy=entropy,
            settings=self.settings,
            rack=self.settings.text("broker.rack"),
            listener=self._listen.name,
        )
        self._listener = listener = Listener(Pipeline(broker), self._listen.name, self._limits())
        self._bind(listener, broker)
        stack.push_async_callback(listener.close)
        await start_broker(broker, stack)
        stack.push_async_callback(_ended, asyncio.create_task(_maintain(disk, clock)))
        stack.push_async_callback(listener.close)
        # Pending JoinGroup and SyncGroup requests are completed before the listener drains.
        stack.callback(broker.groups.stop)
        stack.callback(broker.transactions.stop)
        listener.accept()
        stack.callback(LoopProbe(broker.loop_pauses).close)

    def _open_disk(self, stack: AsyncExitStack, clock: SystemClock, entropy: SystemEntropy) -> DataDirectory:
        settings = self.settings
        # Cleaning a large log takes minutes: a separate thread keeps checkpoints and deletions unblocked.
        cleaning = LoopWorkers(1, "cleaner")
        stack.callback(cleaning.close)
        self._cleaner = Cleaner(cleaning, report=log.warning, is_on=settings.bool("log.cleaner.enable"))
        self._change_cleaner(self._cleaner)
        disk = DataDirectory(
            self.data_dir,
            files=OsFiles(),
            clock=clock,
            entropy=entropy,
            write_workers=LoopWorkers(WRITE_THREADS, "write"),
            sync_workers=LoopWorkers(SYNC_THREADS, "sync"),
            upkeep_workers=LoopWorkers(1, "upkeep"),
            read_workers=LoopWorkers(READ_THREADS, "read"),
            cleaner=self._cleaner,
            intervals=UpkeepIntervals(
                retention_interval_ms=settings.int("log.retention.check.interval.ms"),
                recovery_points_interval_ms=settings.int("log.flush.offset.checkpoint.interval.ms"),
                log_starts_interval_ms=settings.int("log.flush.start.offset.checkpoint.interval.ms"),
            ),
        )
        stack.callback(disk.close)
        return disk

    def _bind(self, listener: Listener, broker: Broker) -> None:
        wanted = self._listen
        try:
            port = listener.bind(wanted.host, wanted.port)
        except OSError as error:
            raise BadSettings(f"cannot bind to {wanted}: {error.strerror or error}") from error
        self._listen = Address(wanted.name, wanted.host, port)
        self.address = advertised_address(
            self.settings.words("advertised.listeners"), self._listen, socket.getfqdn()
        )
        broker.host, broker.port = self.address.host, self.address.port

    def _limits(self) -> ListenerLimits:
        settings = self.settings
        queued_bytes_max = settings.int("queued.max.request.bytes")
        return ListenerLimits(
            connections_max=settings.int("max.connections"),
            connections_per_host_max=settings.int("max.connections.per.ip"),
            connections_of_host_max=parse_address_counts(
                settings.text("max.connections.per.ip.overrides") or ""
            ),
            connections_per_second_max=settings.int("max.connection.creation.rate"),
            idle_max_ms=settings.int("connections.max.idle.ms"),
            request_bytes_max=settings.int("socket.request.max.bytes"),
            receive_memory_bytes_max=queued_bytes_max if queued_bytes_max > 0 else RECEIVE_MEMORY_BYTES_MAX,
            send_buffer_bytes=settings.int("socket.send.buffer.bytes"),
            receive_buffer_bytes=settings.int("socket.receive.buffer.bytes"),
            backlog=settings.int("socket.listen.backlog.size"),
        )

    def _settings_changed(self, names: frozenset[str]) -> None:
        if self._listener is not None:
            self._listener.change_limits(self._limits())
        if self._cleaner is not None:
            self._change_cleaner(self._cleaner)

    def _change_cleaner(self, cleaner: Cleaner) -> None:
        cleaner.change(
            key_memory_bytes=self.settings.int("log.cleaner.dedupe.buffer.size"),
            backoff_ms=self.settings.int("log.cleaner.backoff.ms"),
        )

    async def stop(self) -> None:
        """Complete requests in flight, make everything durable, release the data directory."""
        await self._stack.aclose()

    async def __aenter__(self) -> "Node":
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()


async def _maintain(disk: DataDirectory, clock: SystemClock) -> None:
    while True:
        await asyncio.sleep(UPKEEP_INTERVAL_MS / 1000)
        try:
            disk.upkeep(clock.now_ms())
        except Exception:
            # A failed round must not end retention and checkpoints for good.
            log.exception("maintenance of the data directory failed")


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
