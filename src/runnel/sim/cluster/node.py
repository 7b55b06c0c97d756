"""A node of a simulated cluster: a machine with a disk and a clock, and the broker that runs on it."""

import asyncio
import logging
from contextlib import AsyncExitStack
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Protocol

from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.pipeline import Pipeline
from runnel.broker.runtime.running import leave_cluster, start_broker, start_quorum
from runnel.controller.settings import Settings
from runnel.controller.values import Endpoint
from runnel.disk.cleaner import Cleaner
from runnel.disk.data_directory import DataDirectory
from runnel.disk.staged_write import BACKGROUND_BYTES_MIN
from runnel.net.peers import TcpPeers
from runnel.sim.cluster.scheduler import ProcessLoop
from runnel.sim.cluster.serving import SimListener
from runnel.sim.files import PowerFailure, SimFiles
from runnel.sim.shells import EPOCH_MS, SimEntropy, SimTimers, SimWorkers

if TYPE_CHECKING:
    from runnel.sim.cluster.cluster import Cluster

log = logging.getLogger("runnel.sim")

CLIENT_PORT, CONTROLLER_PORT = 9092, 9093
CLIENT_LISTENER, CONTROLLER_LISTENER = "PLAINTEXT", "CONTROLLER"
CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZQ"
UPKEEP_SECONDS = 0.5


class Life(Enum):
    """The state of a node's process."""

    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"
    ENDED = "ended"


class Watcher(Protocol):
    """Observes the file operations of nodes."""

    def operating(self, process: "Process", path: str) -> None:
        """A process is about to modify a path. Raises PowerFailure if it ends here."""
        ...


class SimNode:
    """A machine. Its disk and its clock survive the processes that run on it."""

    def __init__(self, cluster: "Cluster", node_id: int, settings: dict[str, str]) -> None:
        self.cluster = cluster
        self.id = node_id
        self.host = f"n{node_id}"
        self.settings = settings
        self.files = SimFiles()
        self.clock = NodeClock(cluster, boot_ms=1000 * node_id)
        self.disk_slowness = 1.0
        self.random = Random(f"{cluster.seed} {self.host}")
        self.process: Process | None = None
        """The process, if one runs."""
        self.watchers: dict[Watcher, None] = {}
        self.starts = 0

    @property
    def is_broker(self) -> bool:
        """Does it serve clients?"""
        return "broker" in self.settings.get("process.roles", "broker")

    @property
    def is_controller(self) -> bool:
        """Is it a voter of the quorum?"""
        return "controller" in self.settings.get("process.roles", "controller")

    @property
    def is_running(self) -> bool:
        """Does a process run, paused or not?"""
        return self.process is not None

    @property
    def is_stopping(self) -> bool:
        """Is the process in a controlled stop?"""
        return self.process is not None and self.process.life is Life.STOPPING

    @property
    def is_serving(self) -> bool:
        """Has the process started, and is it not stopping?"""
        return self.process is not None and self.process.life is Life.SERVING

    def start(self) -> None:
        """Start the broker; the host is powered on."""
        assert self.process is None, "a process runs"
        self.cluster.network.power_on(self.host)
        self.starts += 1
        self.files = self.files.handed_over()
        self.files.on_power_failure = self.kill
        self.files.fault = self._operating
        self.process = Process(self)
        self.cluster.trace.add(self.host, "starts")

    def stop(self) -> None:
        """A controlled stop, as by SIGTERM."""
        if self.process is not None:
            self.cluster.trace.add(self.host, "is asked to stop")
            self.process.stop()

    def kill(self) -> None:
        """The process ends here, as by SIGKILL: what it has written is in the page cache."""
        self._end("is killed", with_power_cut=False)

    def cut_power(self) -> None:
        """The machine loses power: what is not synced may be lost."""
        self._end("loses power", with_power_cut=True)
        self.cluster.network.power_off(self.host)
        self.files = self.files.handed_over()
        self.files.lose_power(self.random)

    def ended(self, how: str) -> None:
        """The process has exited on its own."""
        self._end(how, with_power_cut=False)

    def _operating(self, operation: str, path: str) -> None:
        if operation != "pread" and self.process is not None:
            for watcher in list(self.watchers):
                watcher.operating(self.process, path)

    def _end(self, how: str, *, with_power_cut: bool) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        self.cluster.trace.add(self.host, how)
        process.life = Life.ENDED
        process.loop.kill()
        self.files.power_failure_at = 0
        self.cluster.network.process_ended(process.loop, with_power_cut=with_power_cut)
        self.cluster.process_ended(self, process)


class NodeClock:
    """The clocks of a machine: the wall clock may jump, the monotonic clock may not."""

    def __init__(self, cluster: "Cluster", boot_ms: int) -> None:
        self._scheduler = cluster.scheduler
        self._boot_ms = boot_ms
        self.offset_ms = 0
        """How far the wall clock is ahead."""

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._scheduler.now * 1000) + self.offset_ms

    def monotonic_ms(self) -> int:
        return self._boot_ms + int(self._scheduler.now * 1000)

    def seconds(self) -> float:
        return self._boot_ms / 1000 + self._scheduler.now


class Process:
    """One run of the broker on a node."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.files = node.files
        self.loop = node.cluster.scheduler.process(node.host)
        self.loop.connect = node.cluster.network.connector(self.loop, node.host)
        self.life = Life.STARTING
        self.broker: Broker
        self.has_quorum = False
        """Does it have metadata, and take part in the quorum?"""
        self.listeners: dict[int, SimListener] = {}
        """By port."""
        self._stop = asyncio.Event()
        self.loop.create_task(self._run())

    def stop(self) -> None:
        """Begin a controlled stop."""
        self.loop.call_soon(self._stop.set)

    async def _run(self) -> None:
        async with AsyncExitStack() as stack:
            try:
                await self._start(stack)
                self.life = Life.SERVING
                self.node.cluster.trace.add(self.node.host, "serves")
                await self._stop.wait()
            except (PowerFailure, GeneratorExit):
                # No clean-up: a killed process does not close its files.
                stack.pop_all()
                raise
            self.life = Life.STOPPING
        self.node.ended("has stopped")

    async def _start(self, stack: AsyncExitStack) -> None:
        node, loop = self.node, self.loop
        self.files.now_ms = node.clock.now_ms()
        disk = self._open_disk()
        stack.callback(disk.close)
        peers = TcpPeers()
        stack.callback(peers.close)
        self.broker = broker = Broker(
            node_id=node.id,
            cluster_id=CLUSTER_ID,
            host=node.host,
            port=CLIENT_PORT,
            clock=node.clock,
            timers=SimTimers(loop),
            disk=disk,
            entropy=SimEntropy(node.random),
            settings=Settings(node.settings),
            listener=CLIENT_LISTENER,
            controller_listeners=frozenset({CONTROLLER_LISTENER}),
            peers=peers,
        )
        pipeline = Pipeline(broker)
        if node.is_broker:
            broker.endpoints = (Endpoint(CLIENT_LISTENER, node.host, CLIENT_PORT),)
            self._listen(pipeline, CLIENT_LISTENER, CLIENT_PORT)
        if node.is_controller:
            broker.controller_endpoints = (Endpoint(CONTROLLER_LISTENER, node.host, CONTROLLER_PORT),)
            self._listen(pipeline, CONTROLLER_LISTENER, CONTROLLER_PORT)
        disk.identify(CLUSTER_ID, node.id)
        await start_quorum(broker, stack)
        self.has_quorum = True
        if node.is_controller:
            self.listeners[CONTROLLER_PORT].start()
        await start_broker(broker, stack)
        maintenance = loop.create_task(self._maintain(disk))
        stack.callback(maintenance.cancel)
        stack.push_async_callback(self._close_listeners)
        stack.callback(broker.groups.stop)
        stack.callback(broker.transactions.stop)
        self.listeners[CLIENT_PORT].start()
        # As in production: leadership is handed over while the other controllers can still reach this one.
        stack.push_async_callback(broker.quorum.close)
        stack.push_async_callback(leave_cluster, broker)

    def _open_disk(self) -> DataDirectory:
        node = self.node
        return DataDirectory(
            "/data",
            files=self.files,
            clock=node.clock,
            entropy=SimEntropy(node.random),
            write_workers=self._workers(),
            sync_workers=self._workers(),
            upkeep_workers=self._workers(),
            read_workers=self._workers(),
            # Pauses of the cleaner would take real time.
            cleaner=Cleaner(self._workers(), throttle=lambda: None, report=log.warning),
            # Records are small here: some nodes write all of them in threads.
            background_bytes_min=node.random.choice((1, 500, BACKGROUND_BYTES_MIN)),
        )

    def _workers(self) -> SimWorkers:
        return SimWorkers(self.loop, self.node.random, lambda: self.node.disk_slowness)

    def _listen(self, pipeline: Pipeline, name: str, port: int) -> None:
        self.listeners[port] = listener = SimListener(pipeline, name, self.loop)
        self.node.cluster.network.listen(self.node.host, port, self.loop, listener.accept)

    async def _close_listeners(self) -> None:
        network = self.node.cluster.network
        for port, listener in self.listeners.items():
            network.stop_listening(self.node.host, port)
            await listener.close()

    async def _maintain(self, disk: DataDirectory) -> None:
        while True:
            await asyncio.sleep(UPKEEP_SECONDS)
            self.files.now_ms = self.node.clock.now_ms()
            disk.upkeep(self.node.clock.now_ms())


def running_loop() -> ProcessLoop | None:
    """The loop of the process whose callback runs."""
    loop = asyncio._get_running_loop()
    return loop if isinstance(loop, ProcessLoop) else None
