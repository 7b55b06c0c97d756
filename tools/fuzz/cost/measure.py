"""Sending one case after another to the measured broker."""

import asyncio
import json
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.broker_process import free_port
from tools.fuzz.cost.cases import Case
from tools.fuzz.cost.scenarios import Scenario

ROOT = Path(__file__).resolve().parent.parent.parent.parent
START_TIMEOUT_S = 300.0
SETTLE_S = 0.02
"""How long after the response its effects (a metadata change, a rebalance) are still counted."""

_SIZE = struct.Struct(">i")


@dataclass(slots=True)
class Cost:
    """What one request cost the event loop."""

    scenario: Scenario
    case: Case
    request_bytes: int
    outcome: str
    answer_bytes: int
    cpu_ms: float
    wall_ms: float


class MeasuredBroker:
    """The child process, and the pipe to it."""

    def __init__(
        self, data_dir: Path, scenario: Scenario = Scenario.OPEN, settings: Mapping[str, str] | None = None
    ) -> None:
        self.scenario = scenario
        self.client_port, self.controller_port = free_port(), free_port()
        self.broker_epoch = -1
        self._settings = {
            **scenario.settings(data_dir, self.client_port, self.controller_port),
            **(settings or {}),
        }
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> "MeasuredBroker":
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tools.fuzz.cost.measured_broker",
            json.dumps(self._settings),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        started = await asyncio.wait_for(self._line(), START_TIMEOUT_S)
        self.broker_epoch = int(started["broker_epoch"])
        return self

    @property
    def port(self) -> int:
        """Where the requests of the scenario are sent to."""
        return self.controller_port if self.scenario is Scenario.CONTROLLER else self.client_port

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        # Closing it is not enough: the process that builds requests may have inherited the pipe.
        self._process.stdin.write(b"end\n")
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 60)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def command(self, text: str) -> dict[str, float]:
        """Send a command and wait for what it answers, which it does once the loop is free."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode() + b"\n")
        return await self._line()

    async def _line(self) -> dict[str, float]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the measured broker ended")
        answer: dict[str, float] = json.loads(line)
        return answer


async def cost_of(broker: MeasuredBroker, case: Case, frame: bytes, timeout_s: float) -> Cost:
    """Send the frame on a connection of its own; the longest pause until its answer and a little longer."""
    # One connection is accepted and one request served before, so that imports are not measured.
    await broker.command("reset")
    outcome, answer_bytes = await _exchange(broker.port, frame, timeout_s)
    await asyncio.sleep(SETTLE_S)
    pauses = await broker.command("read")
    return Cost(
        broker.scenario,
        case,
        len(frame),
        outcome,
        answer_bytes,
        pauses["cpu_ms_max"],
        pauses["wall_ms_max"],
    )


async def _exchange(port: int, frame: bytes, timeout_s: float) -> tuple[str, int]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    size = 0
    try:
        async with asyncio.timeout(timeout_s):
            writer.write(frame)
            (size,) = _SIZE.unpack(await reader.readexactly(4))
            left = size
            while left:
                piece = await reader.read(min(left, 1 << 20))
                if not piece:
                    return "closed", size
                left -= len(piece)
        return "answered", size
    except TimeoutError:
        return "no answer yet", size
    except (asyncio.IncompleteReadError, OSError):
        return "closed", size
    finally:
        writer.close()
