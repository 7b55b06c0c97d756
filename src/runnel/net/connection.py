"""One client connection: bytes in, frames to the service, answers out in order.

readable → receive → serve every complete frame → finish the turn → send what is filled
              │                                                        │
              └── paused while too much is unanswered, unsent ─────────┘
                  or unread elsewhere, or while one answer holds the line
"""

import logging
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, cast

from runnel.model.limits import ANSWER_BYTES_PENDING_MAX, REQUESTS_IN_FLIGHT_MAX
from runnel.net.buffers import LargeFrame
from runnel.net.outbox import Outbox
from runnel.ports.service import CloseConnection, Loan, Parts, Reply, Session

if TYPE_CHECKING:
    from runnel.net.listener import Listener

LARGE_FRAME_BYTES = 64 * 1024
"""An incomplete frame above this size gets memory of its own instead of being copied back and forth."""

RECEIVE_BYTES = 256 * 1024
"""How much is received at once."""

JOINED_BYTES_MAX = 64 * 1024
"""Small answers up to this much are put together before they are sent."""

HEAD_BYTES = 16 * 1024
"""How much is received at once behind a large frame, so that little of the next one must be moved."""

_SIZE = Struct(">i").unpack_from
log = logging.getLogger("runnel.net")


class Connection:
    """A socket with its unserved bytes and its unanswered requests."""

    __slots__ = (
        "_fd",
        "_held",
        "_in_flight",
        "_is_ending",
        "_is_muted",
        "_is_paused",
        "_is_sending",
        "_is_stalled",
        "_is_waiting_for_memory",
        "_is_writing",
        "_large",
        "_listener",
        "_outbox",
        "_queue",
        "_receive_bytes",
        "_rest",
        "_socket",
        "active_at",
        "is_closed",
        "is_dirty",
        "session",
    )

    def __init__(self, connected: socket.socket, session: Session, listener: "Listener") -> None:
        self.session = session
        self.is_closed = False
        self.is_dirty = False
        """Some answer was filled outside of this connection's own turn."""
        self.active_at = listener.now
        self._socket = connected
        self._fd = connected.fileno()
        self._listener = listener
        self._outbox = Outbox(connected, listener.sender, self._sender_is_back)
        self._queue: deque[Reply] = deque()
        self._in_flight = 0
        """Requests that the queue will answer."""
        self._held: Reply | None = None
        self._rest = b""
        self._large: LargeFrame | None = None
        self._receive_bytes = RECEIVE_BYTES
        self._is_ending = False
        self._is_muted = False
        """The client is throttled: nothing is taken from it for some time."""
        self._is_paused = False
        """The socket is not watched for bytes."""
        self._is_sending = False
        """Not all of what is filled has been sent."""
        self._is_stalled = False
        """Complete frames lie unserved in `_rest`."""
        self._is_waiting_for_memory = False
        self._is_writing = False
        listener.loop.add_reader(self._fd, self.readable)

    @property
    def is_idle(self) -> bool:
        """Nothing is owed to the peer."""
        return not self._queue and self._outbox.is_empty

    @property
    def is_mid_request(self) -> bool:
        """Part of a request is here, and the rest is what we wait for."""
        is_ours_to_solve = self._is_stalled or self._is_waiting_for_memory
        return self._large is not None or (bool(self._rest) and not is_ours_to_solve)

    def readable(self) -> None:
        """The event loop's callback: the socket has bytes, or its end."""
        self.active_at = self._listener.now
        if self._is_paused:
            return
        try:
            if self._is_full():
                self._wait_or_close()
            elif self._large is not None:
                self._receive_large(self._large)
            else:
                self._receive()
        except BlockingIOError:
            return
        except OSError as error:
            self.close(error.strerror or "connection lost")
        except Exception as bug:  # noqa: BLE001 - the listener logs it
            # A bug of ours costs this connection only. A client may be able to repeat it at will.
            self._listener.complain("serving %s failed", self.session.client_host, bug=bug)
            self.close("internal error")

    def _wait_or_close(self) -> None:
        """Take nothing now, unless it is the news that nobody is there any more."""
        if self._socket.recv(1, socket.MSG_PEEK):
            self._pause()
        else:
            self.close("")

    def _receive(self) -> None:
        buffer = self._listener.buffer
        start = end = len(self._rest)
        if not self._is_stalled:
            received = self._socket.recv_into(buffer[start : start + self._receive_bytes])
            if not received:
                self.close("")
                return
            end += received
        if start:
            buffer[:start] = self._rest
            self._rest = b""
        self._serve(buffer, end)

    def _receive_large(self, large: LargeFrame) -> None:
        received = self._socket.recv_into(large.room())
        if not received:
            self.close("closed in the middle of a request")
            return
        large.received += received
        if large.is_complete:
            self._serve_large(large)

    def _serve_large(self, large: LargeFrame) -> None:
        self._large = None
        frame = large.frame
        loan = Loan(partial(self._listener.memory.give_back, large))
        try:
            self._turn(partial(self._serve_frame, frame), loan)
        finally:
            loan.done()
        self._flush()

    def _serve(self, buffer: memoryview, end: int) -> None:
        """Serve every complete frame of the buffer, keep the rest for later."""
        self._receive_bytes = RECEIVE_BYTES
        self._is_stalled = False
        position, impossible = self._turn(partial(self._serve_frames, buffer, end))
        if self.is_closed:
            return
        if self._is_stalled:
            self._rest = bytes(buffer[position:end])
        elif position < end and not impossible:
            self._keep_incomplete(buffer[position:end])
        if impossible:
            self._flush()
            self.close(impossible, warn=True)
        elif self._listener.sends_at_once():
            self._flush()
        else:
            # Sent when all connections that are readable now were served: a peer that wakes up to many
            # answers sends many requests, which then cost one receive, one write and one send.
            self._answer_ready()

    def _turn(
        self, serve: Callable[[list[Reply]], tuple[int, str]], loan: Loan | None = None
    ) -> tuple[int, str]:
        """Let the service take frames, then finish what they began; returns what `serve` does."""
        service = self._listener.service
        replies: list[Reply] = []
        outcome = (0, "")
        goodbye: str | None = None
        try:
            outcome = serve(replies)
        except CloseConnection as reason:
            goodbye = str(reason)
        finally:
            # Whatever ended the turn, what came before is written and answered.
            service.finish_turn(loan)
        for reply in replies:
            if not reply.is_filled:
                reply.on_filled = self._answer_ready
                if reply.holds_line:
                    self._held = reply
            self._in_flight += reply.count
        self._queue.extend(replies)
        if self.session.throttle_ms:
            self._mute()
        if goodbye is not None:
            self._flush()
            self.close(goodbye, warn=True)
        return outcome

    def _serve_frame(self, frame: memoryview, replies: list[Reply]) -> tuple[int, str]:
        """One frame in memory of its own."""
        size = len(frame)
        return self._listener.service.serve(frame, 0, size, size, self.session, replies, 1), ""

    def _serve_frames(self, buffer: memoryview, end: int, replies: list[Reply]) -> tuple[int, str]:
        """Hand frames to the service; returns the end of those taken, and why the next one cannot be."""
        serve, session = self._listener.service.serve, self.session
        limit = self._listener.request_bytes_max
        position = seen = 0
        room = REQUESTS_IN_FLIGHT_MAX - self._in_flight
        unsent_bytes = self._outbox.memory_bytes
        is_full = False
        while end - position >= 4:
            (size_bytes,) = _SIZE(buffer, position)
            after = position + 4 + size_bytes
            if not 0 < size_bytes <= limit:
                if not is_full:
                    return position, f"a request of {size_bytes} bytes, the limit is {limit}"
            elif after > end:
                break
            if is_full:
                self._is_stalled = True
                break
            position = serve(buffer, position + 4, after, end, session, replies, room)
            is_full = session.throttle_ms > 0
            for reply in replies[seen:]:
                room -= reply.count
                unsent_bytes += reply.size_bytes
                is_full |= reply.holds_line and not reply.is_filled
            seen = len(replies)
            is_full |= room <= 0 or unsent_bytes >= ANSWER_BYTES_PENDING_MAX
        return position, ""

    def _keep_incomplete(self, piece: memoryview) -> None:
        """The beginning of a frame: small ones wait as bytes, large ones get memory to be received into."""
        if len(piece) < 4 or (size_bytes := _SIZE(piece)[0]) <= LARGE_FRAME_BYTES:
            self._rest = bytes(piece)
            return
        large = self._listener.memory.take(size_bytes)
        if large is None:
            self._rest = bytes(piece)
            self._is_waiting_for_memory = True
            self._pause()
            self._listener.memory.when_free(self._memory_is_free)
            return
        large.add(piece[4:])
        self._large = large
        self._receive_bytes = HEAD_BYTES

    def stop_reading(self) -> None:
        """Take no more requests; what was taken will still be answered."""
        self._is_ending = True
        self._pause()

    def _is_full(self) -> bool:
        """Too much is owed to the peer to take more from it."""
        return (
            self._held is not None
            or self._is_ending
            or self._is_muted
            or self._in_flight >= REQUESTS_IN_FLIGHT_MAX
            or self._outbox.memory_bytes >= ANSWER_BYTES_PENDING_MAX
        )

    def _mute(self) -> None:
        """Take nothing for as long as the service asked; frames that are already here wait as well."""
        delay_ms, self.session.throttle_ms = self.session.throttle_ms, 0
        self._is_muted = True
        self._listener.loop.call_later(delay_ms / 1000, self._unmute)

    def _unmute(self) -> None:
        self._is_muted = False
        self._resume()

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._listener.loop.remove_reader(self._fd)

    def _resume(self) -> None:
        """Take up unserved frames, then reading, if nothing speaks against it any more."""
        if self.is_closed or self._is_waiting_for_memory or self._is_full():
            return
        if self._is_paused:
            self._is_paused = False
            self._listener.loop.add_reader(self._fd, self.readable)
        if self._is_stalled:
            self.readable()

    def _memory_is_free(self) -> None:
        self._is_waiting_for_memory = False
        if self.is_closed:
            return
        rest, self._rest = self._rest, b""
        self._keep_incomplete(memoryview(rest))
        self._resume()

    def _answer_ready(self) -> None:
        if not self.is_dirty and not self.is_closed:
            self.is_dirty = True
            self._listener.dirty(self)

    def flush(self) -> None:
        """Answers were filled outside of this connection's own turn: send them and go on."""
        self.is_dirty = False
        if not self.is_closed:
            self._flush()

    def _flush(self) -> None:
        queue = self._queue
        parts: Parts = []
        count = memory_bytes = 0
        hangs_up = False
        while queue and queue[0].is_filled:
            reply = queue.popleft()
            if not reply.parts:
                hangs_up = True
                break
            parts += reply.parts
            memory_bytes += reply.size_bytes
            self._in_flight -= reply.count
            count += 1
        if count > 1 and len(parts) == count and memory_bytes <= JOINED_BYTES_MAX:
            # One part each, so none of a file: a copy is cheaper than a list of buffers for the kernel.
            parts = [b"".join(cast("list[bytes]", parts))]
        if parts:
            self._send(parts)
        if hangs_up:
            self.close("")
            return
        if self._held is not None and self._held.is_filled:
            self._held = None
        if self._is_stalled or self._is_paused:
            self._listener.loop.call_soon(self._resume)

    def _send(self, parts: Parts) -> None:
        try:
            self._outbox.send(parts, self._listener.has_others_to_send_to(self._is_sending))
        except OSError as error:
            self.close(error.strerror or "connection lost")
            return
        self._watch_writing()

    def _watch_writing(self) -> None:
        """Be told when the socket takes more, as long as there is more and it is ours to send."""
        is_sending = not self._outbox.is_empty
        self._listener.sending_count += is_sending - self._is_sending
        self._is_sending = is_sending
        is_writing = is_sending and not self._outbox.is_away
        if is_writing and not self._is_writing:
            self._listener.loop.add_writer(self._fd, self.writable)
        elif self._is_writing and not is_writing:
            self._listener.loop.remove_writer(self._fd)
        self._is_writing = is_writing

    def writable(self) -> None:
        """The event loop's callback: the socket takes bytes again."""
        self.active_at = self._listener.now
        try:
            self._outbox.push(self._listener.has_others_to_send_to(self._is_sending))
        except OSError as error:
            self.close(error.strerror or "connection lost")
            return
        self._watch_writing()
        if self._is_paused or self._is_stalled:
            self._resume()

    def _sender_is_back(self, failure: OSError | None) -> None:
        if failure is not None:
            self.close(failure.strerror or "connection lost")
        else:
            self.writable()

    def close(self, reason: str, warn: bool = False) -> None:
        """Hang up and give everything back."""
        if self.is_closed:
            return
        self.is_closed = True
        if reason:
            say = self._listener.complain if warn else log.debug
            say("closed %s:%d: %s", self.session.client_host, self.session.client_port, reason)
        loop = self._listener.loop
        loop.remove_reader(self._fd)
        if self._is_writing:
            loop.remove_writer(self._fd)
        self._listener.sending_count -= self._is_sending
        self._outbox.close()
        if self._large is not None:
            self._listener.memory.give_back(self._large)
            self._large = None
        self._queue.clear()
        self._rest = b""
        self._listener.closed(self)
