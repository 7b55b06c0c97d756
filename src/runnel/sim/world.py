"""A broker's lives in one simulated world: it starts, serves, dies, and starts again on what is left."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from random import Random

from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.dispatch import Dispatch
from runnel.broker.runtime.running import start_broker
from runnel.controller.settings import Settings
from runnel.disk.cleaner import Cleaner
from runnel.disk.data_directory import DataDirectory
from runnel.disk.writing import BACKGROUND_BYTES_MIN
from runnel.sim.files import PowerCut, SimFiles
from runnel.sim.loop import NothingWillHappen, VirtualLoop
from runnel.sim.network import Line
from runnel.sim.shells import SimClock, SimEntropy, SimTimers, SimWorkers

log = logging.getLogger("runnel.sim")
UPKEEP_SECONDS = 0.5
SETTINGS = {
    "num.partitions": "3",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    # Segments may not be set smaller than 1 MiB, which is much for a world in memory: they roll by age.
    "log.roll.ms": "300",
    "log.index.interval.bytes": "512",
    "log.segment.delete.delay.ms": "100",
}


class Strict(logging.Handler):
    """Fails a story in which the broker met an error that it did not foresee, and only logged it."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None:
            raise AssertionError(record.getMessage())


class World:
    """The disk, the clock and the luck that outlive every crash."""

    def __init__(self, seed: int, *, settings: dict[str, str]) -> None:
        self.random = Random(seed)
        self.files = SimFiles()
        self.settings = {**SETTINGS, **settings}
        self._seconds = 0.0

    def live(self, story: Callable[["Life"], Awaitable[None]]) -> None:
        """One life of the broker: the story ends it, by returning (a clean stop) or by raising Death."""
        loop = VirtualLoop()
        loop.pass_time(self._seconds)
        loop.set_exception_handler(_ignore_the_dead)
        asyncio.set_event_loop(loop)
        strict = Strict(logging.ERROR)
        disk_logger = logging.getLogger("runnel.disk")
        disk_logger.addHandler(strict)
        try:
            loop.run_until_complete(Life(self, loop).run(story))
        except NothingWillHappen:
            if self.files.is_cut:
                raise Death from None
            raise
        finally:
            disk_logger.removeHandler(strict)
            self._seconds = loop.time() + 1
            asyncio.set_event_loop(None)
            # What the dead broker still had in hand never happens: its tasks and timers go with their loop.
            _quietly_forget(loop)


class Death(BaseException):
    """The process ends here, without a word. Not an Exception: nothing in the process may handle it."""


class Life:
    """One run of the broker between two deaths."""

    def __init__(self, world: World, loop: VirtualLoop) -> None:
        self.world = world
        self.random = world.random
        self.loop = loop
        self.clock = SimClock(loop)
        self.dispatch: Dispatch

    async def run(self, story: Callable[["Life"], Awaitable[None]]) -> None:
        async with AsyncExitStack() as stack:
            try:
                await self._start(stack)
                await story(self)
            except (Death, PowerCut, GeneratorExit):
                # No clean-up of any kind: a dead process does not close its files. The last of these comes
                # when a callback met the death, and this coroutine is dropped where it waits.
                stack.pop_all()
                raise

    async def line(self, *, is_classic: bool = False) -> Line:
        """A new connection to the broker; a classic client's transactions are those before KIP-890."""
        return await Line(self.dispatch, self.random).open(is_classic=is_classic)

    async def _start(self, stack: AsyncExitStack) -> None:
        clock, entropy = self.clock, SimEntropy(self.random)
        self.world.files.now_ms = clock.now_ms()
        disk = DataDirectory(
            "/data",
            files=self.world.files,
            clock=clock,
            entropy=entropy,
            write_workers=SimWorkers(self.loop, self.random),
            sync_workers=SimWorkers(self.loop, self.random),
            upkeep_workers=SimWorkers(self.loop, self.random),
            read_workers=SimWorkers(self.loop, self.random),
            # A made-up world waits for nobody, and the pauses of a real thread would take real time.
            cleaner=Cleaner(SimWorkers(self.loop, self.random), rest=lambda: None, report=log.warning),
            # Records are small here: some worlds let threads write whatever they can.
            background_bytes_min=self.random.choice((1, 500, BACKGROUND_BYTES_MIN)),
        )
        stack.callback(disk.close)
        broker = Broker(
            node_id=1,
            cluster_id="",
            host="sim",
            port=1,
            clock=clock,
            timers=SimTimers(self.loop),
            disk=disk,
            entropy=entropy,
            settings=Settings(self.world.settings),
        )
        await start_broker(broker, stack)
        stack.callback(broker.groups.stop)
        stack.callback(broker.transactions.stop)
        keeping_up = asyncio.ensure_future(self._keep_up(disk, clock))
        stack.callback(keeping_up.cancel)
        self.dispatch = Dispatch(broker)

    async def _keep_up(self, disk: DataDirectory, clock: SimClock) -> None:
        while True:
            await asyncio.sleep(UPKEEP_SECONDS)
            self.world.files.now_ms = clock.now_ms()
            disk.upkeep(clock.now_ms())


def _ignore_the_dead(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    error = context.get("exception")
    if isinstance(error, Exception):
        raise error


def _quietly_forget(loop: VirtualLoop) -> None:
    loop.set_exception_handler(lambda _loop, _context: None)
    loop.close()
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    gc.collect()
    logging.disable(level)
