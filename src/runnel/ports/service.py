"""What a network shell needs of a broker: hand over frames, take answers in order.

The shell cuts frames and calls `serve` for each, then `finish_turn` once, then sends what is ready. An answer
may be ready at once, at the end of the turn, or much later (a long poll): its `Reply` keeps its place.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from runnel.ports.disk import FileSlice

Parts = list[bytes | bytearray | memoryview | FileSlice]
"""One whole response frame, length prefix included, in pieces."""


class CloseConnection(Exception):
    """The peer said something that has no answer: the connection ends, the reason goes to the log."""


@dataclass(slots=True, eq=False)
class Session:
    """One connection as a handler sees it: who is at the other end."""

    client_host: str
    client_port: int
    listener: str
    connection_id: int
    produce_shape: Any = None
    """What the broker remembers of this connection's last produce request."""
    fetch_shape: Any = None
    """And of its last fetch request."""


class Loan:
    """Memory of a request, lent beyond the end of its turn to those who still write from it."""

    __slots__ = ("_borrowers", "_give_back")

    def __init__(self, give_back: Callable[[], None]) -> None:
        # Whoever lends counts as one, so that nothing is given back before the turn is over.
        self._borrowers = 1
        self._give_back = give_back

    def borrow(self) -> None:
        """One more keeps the memory."""
        self._borrowers += 1

    def done(self) -> None:
        """One of them needs it no longer."""
        self._borrowers -= 1
        if not self._borrowers:
            self._give_back()


class Reply:
    """The place of one answer in its connection's queue; filled now, at the end of the turn, or later."""

    __slots__ = ("holds_line", "is_filled", "on_filled", "parts", "size_bytes")

    def __init__(self) -> None:
        self.parts: Parts = []
        self.size_bytes = 0
        self.is_filled = False
        self.holds_line = False
        """The connection's next request waits for this answer, as every request does in Kafka."""
        self.on_filled: Callable[[], None] | None = None

    def fill(self, parts: Parts, size_bytes: int) -> None:
        """Give the answer; one without parts ends the connection instead."""
        self.parts = parts
        self.size_bytes = size_bytes
        self.is_filled = True
        if self.on_filled is not None:
            self.on_filled()


class Service(Protocol):
    """A broker behind a listener."""

    def serve(self, frame: memoryview, session: Session) -> Reply | None:
        """Begin one request; None if it wants no answer. The frame is borrowed until `finish_turn` returns.

        Raises CloseConnection.
        """
        ...

    def finish_turn(self, loan: Loan | None = None) -> None:
        """Write what the turn's requests staged and fill the replies that are ready.

        With a loan, large writes may go on from the memory of its request after the turn.
        """
        ...

    def ending(self) -> None:
        """No more requests will come: answer what waits for nothing but time."""
        ...

    def closed(self, session: Session) -> None:
        """The connection is gone: its long polls need no answer."""
        ...
