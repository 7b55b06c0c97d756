"""Many connections to a secured broker, each with one exchange of which a step is broken."""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from random import Random

from tools.fuzz.attack import TIMEOUT_S, Streams, disconnect

CONNECTIONS = 24
EXCHANGE_TIMEOUT_S = 4 * TIMEOUT_S


class BrokenExchanges(ABC):
    """A number of exchanges, and how each of them ended."""

    def __init__(self, count: int, seed: int) -> None:
        self._left = count
        self.chance = Random(seed)
        self.outcomes: Counter[str] = Counter()
        self.violations: list[str] = []
        """What the broker must not have done."""

    @abstractmethod
    async def connect(self) -> Streams:
        """A new connection."""

    @abstractmethod
    async def exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """One broken exchange; its outcome."""

    async def run(self, connections: int = CONNECTIONS) -> None:
        """All exchanges, this many at a time."""
        await asyncio.gather(*(self._attacker() for _ in range(connections)))

    async def _attacker(self) -> None:
        while self._left > 0:
            self._left -= 1
            try:
                reader, writer = await self.connect()
            except (OSError, EOFError, TimeoutError):
                self.outcomes["not connected"] += 1
                continue
            try:
                async with asyncio.timeout(EXCHANGE_TIMEOUT_S):
                    outcome = await self.exchange(reader, writer)
            except TimeoutError:
                outcome = "parked"
            except (EOFError, OSError):
                outcome = "refused"
            finally:
                disconnect(writer)
            self.outcomes[outcome] += 1


def loopback_address(chance: Random) -> tuple[str, int]:
    """An address to connect from: failed authentications are delayed by address."""
    parts = chance.randrange(1, 255), chance.randrange(255), chance.randrange(1, 255)
    return "127.{}.{}.{}".format(*parts), 0
