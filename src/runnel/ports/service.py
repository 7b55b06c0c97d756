"""What a network shell needs of a broker: hand over frames, take responses in order.

The shell receives, calls `serve` until no whole frame is left, then `finish_turn` once, then sends what is
ready. A response may be ready at once, at the end of the turn, or much later (a long poll): its `Reply` keeps
its position in the queue.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from runnel.ports.disk import FileSlice
from runnel.security.principal import ANONYMOUS, Principal

Parts = list[bytes | bytearray | memoryview | FileSlice]
"""One whole response frame, length prefix included, in pieces."""


class CloseConnection(Exception):
    """The request cannot have a response: the connection is closed, and the reason is logged."""


class Authentication(Protocol):
    """How far a connection of a SASL listener is authenticated."""

    @property
    def is_complete(self) -> bool:
        """Whether the client may send any request."""
        ...

    @property
    def was_completed(self) -> bool:
        """Whether the client has authenticated, and perhaps authenticates again."""
        ...

    def request_bytes_max(self, limit: int) -> int:
        """The largest frame that is received at the moment, given the limit of the listener."""
        ...

    def check(self, api_key: int) -> None:
        """Whether a decoded request may be handled. Raises ApiError or CloseConnection."""
        ...

    def serve(
        self, frame: memoryview, serve_frame: "Callable[[memoryview, Session], Reply | None]"
    ) -> "Reply | None":
        """Pass on a frame that may be decoded, or process it as a token. Raises CloseConnection."""
        ...

    def versions_sent(self) -> None:
        """ApiVersions was answered in full."""
        ...


class Loan:
    """Memory of a request, lent beyond the end of its turn: to writes in flight and to later slices."""

    __slots__ = ("_borrowers", "_give_back")

    def __init__(self, give_back: Callable[[], None]) -> None:
        # The lender counts as one, so that memory is not released before the turn ends.
        self._borrowers = 1
        self._give_back = give_back

    def borrow(self) -> None:
        """Add a reference."""
        self._borrowers += 1

    def done(self) -> None:
        """Drop a reference."""
        self._borrowers -= 1
        if not self._borrowers:
            self._give_back()


@dataclass(slots=True, eq=False)
class Session:
    """A connection as seen by the broker: its peer and its cached request template."""

    client_host: str
    client_port: int
    listener: str
    connection_id: int
    principal: Principal = ANONYMOUS
    """Changes when the connection is authenticated."""
    client_id: str | None = None
    """Of its last request that was decoded."""
    authentication: Authentication | None = None
    """None on listeners without SASL."""
    throttle_ms: int = 0
    """Throttle time set by the service; reset by the shell when applied."""
    quotas: Any = None
    """The quotas that apply to the principal and the client id."""
    meter: Callable[[float], None] | None = None
    """Takes the seconds that the event loop is busy with the connection, if a quota limits them."""
    is_metered: bool = False
    """Does the time of this turn count? Reset by the shell at its end."""
    template: Any = None
    """The connection's last produce or fetch request, in the form that recognizes its repetitions."""
    template_version: int = -1
    """The authorizer's version under which that request was permitted."""
    verdicts: Any = None
    """What the authorizer decided for the principal of the connection."""
    pending: set[Any] = field(default_factory=set)
    """Requests whose responses are promised."""
    on_closed: Callable[[], None] | None = None
    """Called when the connection is closed."""
    received: float = 0.0
    """When the requests that are being served were received, in seconds of the monotonic clock."""
    loan: Loan | None = None
    """The memory of the request that is being served, if it is its own; others are borrowed for a turn."""
    is_forwarded: bool = False
    """A broker forwarded its requests to this node: they are answered here, and not forwarded again."""
    is_refused: bool = False
    """A request was refused because this node is not the active controller."""


class Reply:
    """One response, or several that follow each other, in the queue of a connection.

    It is filled now, at the end of the turn, or later. Filled without parts, it closes the connection, or
    if it is silent (acks=0), nothing is sent.
    """

    __slots__ = (
        "close_reason",
        "count",
        "is_filled",
        "is_silent",
        "mutes_connection",
        "on_filled",
        "parts",
        "size_bytes",
    )

    def __init__(self) -> None:
        self.count = 1
        """How many requests it answers."""
        self.parts: Parts = []
        self.size_bytes = 0
        self.is_filled = False
        self.is_silent = False
        self.close_reason = ""
        """Why the connection is closed after the response, or without one: it is logged. A response
        without parts closes the connection with any reason, or with none if the client is not to blame."""
        self.mutes_connection = False
        """The connection's next request waits for this response, as every request does in Kafka."""
        self.on_filled: Callable[[], None] | None = None

    def fill(self, parts: Parts, size_bytes: int) -> None:
        """The response is known."""
        self.parts = parts
        self.size_bytes = size_bytes
        self.is_filled = True
        if self.on_filled is not None:
            self.on_filled()


class Service(Protocol):
    """A broker behind a listener."""

    def serve(
        self,
        buffer: memoryview,
        start: int,
        after: int,
        end: int,
        session: Session,
        replies: list[Reply],
        count_max: int,
    ) -> int:
        """Begin the request in buffer[start:after], and those up to `end` that repeat it; returns their end.

        A request behind the first one has its size before it. At most `count_max` are begun. Those that
        will be answered are added to `replies`, in order. The buffer is borrowed until `finish_turn`
        returns. Raises CloseConnection.
        """
        ...

    def finish_turn(self, loan: Loan | None = None) -> None:
        """Write what the turn's requests staged and fill the replies that are ready.

        With a loan, large writes may use the memory of their request after the turn.
        """
        ...

    def ending(self) -> None:
        """No more requests will arrive: complete requests that only wait for a timeout."""
        ...

    def closed(self, session: Session) -> None:
        """The connection is closed: its requests need no response."""
        ...
