"""A broker whose event loop measures its own pauses: `python -m tools.fuzz.cost.measured_broker JSON`.

A pause is the time from one wake-up of the selector to its next wait: nothing else can be served meanwhile.
Commands come in by standard input, one line each: `reset` starts a measurement, `read` ends it with a line of
JSON, `end` stops the broker. Both wall time and the thread's own CPU time are taken, because a busy machine
stretches the former.
"""

import asyncio
import json
import os
import selectors
import signal
import sys
import time
from dataclasses import asdict, dataclass

from runnel.server.log_format import configure_logging
from runnel.server.node import Node
from runnel.server.process import bound_garbage_collection, raise_descriptor_limit


@dataclass(slots=True)
class Pauses:
    """The longest pause since the last reset, by either clock."""

    wall_ms_max: float = 0.0
    cpu_ms_max: float = 0.0


class MeasuringSelector(selectors.DefaultSelector):
    """Takes the time between its waits."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses = Pauses()
        self._woken_s = time.perf_counter()
        self._woken_cpu_s = time.thread_time()

    def select(self, timeout: float | None = None) -> "list[tuple[selectors.SelectorKey, int]]":
        wall_ms = (time.perf_counter() - self._woken_s) * 1000
        cpu_ms = (time.thread_time() - self._woken_cpu_s) * 1000
        pauses = self.pauses
        pauses.wall_ms_max = max(pauses.wall_ms_max, wall_ms)
        pauses.cpu_ms_max = max(pauses.cpu_ms_max, cpu_ms)
        events = super().select(timeout)
        self._woken_s, self._woken_cpu_s = time.perf_counter(), time.thread_time()
        return events


async def serve(settings: dict[str, str], selector: MeasuringSelector) -> None:
    """Run the broker until standard input ends, or says so."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def command() -> None:
        for line in os.read(0, 1024).decode().splitlines() or [""]:
            if line == "read":
                print(json.dumps(asdict(selector.pauses)), flush=True)
            elif line == "reset":
                selector.pauses = Pauses()
                print("{}", flush=True)
            else:
                ended.set()

    async with Node(settings) as node:
        bound_garbage_collection()
        loop.add_reader(0, command)
        loop.add_signal_handler(signal.SIGTERM, ended.set)
        assert node._disk is not None
        print(json.dumps({"broker_epoch": node._disk.broker_epoch}), flush=True)
        await ended.wait()
        loop.remove_reader(0)


def main() -> None:
    configure_logging("warning")
    raise_descriptor_limit()
    selector = MeasuringSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(serve(json.loads(sys.argv[1]), selector))


if __name__ == "__main__":
    main()
