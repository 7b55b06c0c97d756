"""A simulation: a broker that starts, serves, crashes, and restarts from its simulated disk."""

import asyncio
import gc
import logging
import warnings
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from random import Random

from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.pipeline import Pipeline
from runnel.broker.runtime.running import start_broker, start_quorum
from runnel.controller.settings import Settings
from runnel.disk.cleaner import Cleaner
from runnel.disk.data_directory import DataDirectory
from runnel.disk.staged_write import BACKGROUND_BYTES_MIN
from runnel.sim.files import PowerFailure, SimFiles
from runnel.sim.loop import Deadlock, VirtualLoop
from runnel.sim.network import SimConnection
from runnel.sim.shells import SimClock, SimEntropy, SimTimers, SimWorkers

log = logging.getLogger("runnel.sim")
UPKEEP_SECONDS = 0.5
SETTINGS = {
    "num.partitions": "3",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    # The minimum segment size of 1 MiB is large for a simulation: segments roll by age.
    "log.roll.ms": "300",
    "log.index.interval.bytes": "512",
    "log.segment.delete.delay.ms": "100",
}


class FailOnException(logging.Handler):
    """Fails the simulation when the broker logs an unexpected exception."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None:
            raise AssertionError(record.getMessage())


class UnexpectedFailures(logging.Filter):
    """Collects unexpected exceptions that the broker logs. What a power failure interrupts is not logged."""

    def __init__(self, files: SimFiles) -> None:
        super().__init__()
        self._files = files
        self.messages: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info is None:
            return True
        if self._files.has_lost_power:
            return False
        self.messages.append(record.getMessage())
        return True


class Simulation:
    """State that survives crashes of the broker: disk, clock and randomness."""

    def __init__(self, seed: int, *, settings: dict[str, str]) -> None:
        self.random = Random(seed)
        self.files = SimFiles()
        self.settings = {**SETTINGS, **settings}
        self._seconds = 0.0

    def run_broker(self, workload: Callable[["Incarnation"], Awaitable[None]]) -> None:
        """Run one incarnation of the broker until `workload` returns (clean shutdown) or raises Crash."""
        loop = VirtualLoop(lambda: self.files.has_lost_power)
        loop.advance(self._seconds)
        loop.set_exception_handler(_ignore_crashes)
        asyncio.set_event_loop(loop)
        strict = FailOnException(logging.ERROR)
        disk_logger = logging.getLogger("runnel.disk")
        disk_logger.addHandler(strict)
        unexpected = UnexpectedFailures(self.files)
        broker_logger = logging.getLogger("runnel.broker")
        broker_logger.addFilter(unexpected)
        try:
            loop.run_until_complete(Incarnation(self, loop).run(workload))
        except Deadlock:
            if self.files.has_lost_power:
                raise Crash from None
            raise
        finally:
            disk_logger.removeHandler(strict)
            broker_logger.removeFilter(unexpected)
            self._seconds = loop.time() + 1
            asyncio.set_event_loop(None)
            # Pending tasks and timers of the crashed broker are dropped with their loop.
            _discard(loop)
            if unexpected.messages:
                raise AssertionError(unexpected.messages[0])


class Crash(BaseException):
    """The process crashes here. Not an Exception: no handler in the process may catch it."""


class Incarnation:
    """One run of the broker between two crashes."""

    pause_seconds = 0.02

    def __init__(self, simulation: Simulation, loop: VirtualLoop) -> None:
        self.simulation = simulation
        self.random = simulation.random
        self.loop = loop
        self.clock = SimClock(loop)
        self.pipeline: Pipeline
        self.broker: Broker

    async def run(self, workload: Callable[["Incarnation"], Awaitable[None]]) -> None:
        async with AsyncExitStack() as stack:
            try:
                await self._start(stack)
                await workload(self)
            except (Crash, PowerFailure, GeneratorExit):
                # No clean-up: a crashed process does not close its files. GeneratorExit is raised when a
                # callback crashed and this coroutine is discarded while it waits.
                stack.pop_all()
                raise

    async def connect(self, *, is_classic: bool = False) -> SimConnection:
        """Connect to the broker; a classic client uses transactions as before KIP-890."""
        return await SimConnection(self.pipeline, self.random).open(is_classic=is_classic)

    async def _start(self, stack: AsyncExitStack) -> None:
        clock, entropy = self.clock, SimEntropy(self.random)
        self.simulation.files.now_ms = clock.now_ms()
        disk = DataDirectory(
            "/data",
            files=self.simulation.files,
            clock=clock,
            entropy=entropy,
            write_workers=SimWorkers(self.loop, self.random),
            sync_workers=SimWorkers(self.loop, self.random),
            upkeep_workers=SimWorkers(self.loop, self.random),
            read_workers=SimWorkers(self.loop, self.random),
            # Pauses of the cleaner would take real time.
            cleaner=Cleaner(SimWorkers(self.loop, self.random), throttle=lambda: None, report=log.warning),
            # Records are small here: some simulations lower the threshold for writes by threads.
            background_bytes_min=self.random.choice((1, 500, BACKGROUND_BYTES_MIN)),
        )
        stack.callback(disk.close)
        broker = self.broker = Broker(
            node_id=1,
            cluster_id="",
            host="sim",
            port=1,
            clock=clock,
            timers=SimTimers(self.loop),
            disk=disk,
            entropy=entropy,
            settings=Settings(self.simulation.settings),
        )
        await start_quorum(broker, stack)
        await start_broker(broker, stack)
        stack.callback(broker.groups.stop)
        stack.callback(broker.transactions.stop)
        maintenance = asyncio.ensure_future(self._maintain(disk, clock))
        stack.callback(maintenance.cancel)
        self.pipeline = Pipeline(broker)

    async def _maintain(self, disk: DataDirectory, clock: SimClock) -> None:
        while True:
            await asyncio.sleep(UPKEEP_SECONDS)
            self.simulation.files.now_ms = clock.now_ms()
            disk.upkeep(clock.now_ms())


def _ignore_crashes(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    error = context.get("exception")
    if isinstance(error, Exception):
        raise error


def _discard(loop: VirtualLoop) -> None:
    loop.set_exception_handler(lambda _loop, _context: None)
    loop.close()
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        # A task that the crash kept from its first step is no mistake of the broker.
        warnings.simplefilter("ignore", RuntimeWarning)
        gc.collect()
    logging.disable(level)
