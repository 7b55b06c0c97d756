"""What the clients of a simulation see of it: randomness, a clock, and connections."""

from random import Random
from typing import Protocol, TypeVar

from runnel.ports.clock import Clock
from runnel.wire import Request, Response

Answer = TypeVar("Answer", bound=Response)


class ConnectionLost(Exception):
    """The connection was lost; the outcome of pending requests is unknown."""


class Connection(Protocol):
    """A connection to a broker, or to the brokers of a cluster."""

    async def ask(self, request: Request, answer: type[Answer]) -> Answer:
        """Send a request and wait for its response. Raises ConnectionLost."""
        ...


class World(Protocol):
    """A broker or a cluster of them, as clients see it."""

    @property
    def random(self) -> Random: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def pause_seconds(self) -> float:
        """How long a client pauses at most between two requests."""
        ...

    async def connect(self, *, is_classic: bool = False) -> Connection:
        """Connect; a classic client uses transactions as before KIP-890. Raises ConnectionLost."""
        ...
