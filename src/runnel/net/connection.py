"""A client connection: receives frames, passes them to the service, sends responses in order.

readable → receive → serve every complete frame → finish the turn → send what is filled
              │                                                        │
              └── paused while too much is in flight or unsent ────────┘
                  or memory is exhausted, or while a response holds the connection
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from struct import Struct
from time import monotonic, thread_time
from typing import TYPE_CHECKING, cast

from runnel.model.limits import (
    ANSWER_BYTES_PENDING_MAX,
    REQUESTS_IN_FLIGHT_MAX,
    UNAUTHENTICATED_REQUEST_BYTES_MAX,
)
from runnel.net.buffers import LargeFrame
from runnel.net.outbox import Outbox
from runnel.ports.service import CloseConnection, Loan, Parts, Reply, Session

if TYPE_CHECKING:
    from runnel.net.listener import Listener

LARGE_FRAME_BYTES = UNAUTHENTICATED_REQUEST_BYTES_MAX
"""An incomplete frame above this size gets its own buffer instead of being copied repeatedly."""

RECEIVE_BYTES = 256 * 1024
"""Size of one receive."""

JOINED_BYTES_MAX = 64 * 1024
"""Small responses up to this size are joined before they are sent."""

HEAD_BYTES = 16 * 1024
"""Size of one receive after a large frame, so that little of the next frame has to be copied."""

SERVE_SECONDS_MAX = 0.01
"""How long the requests of one receive are served before other connections are; none is interrupted."""

_SIZE = Struct(">i").unpack_from
log = logging.getLogger("runnel.net")


class Connection:
    """A socket with its unprocessed bytes and pending requests."""

    __slots__ = (
        "_fd",
        "_held",
        "_in_flight",
        "_is_ending",
        "_is_paused",
        "_is_sending",
        "_is_stalled",
        "_is_waiting_for_memory",
        "_is_writing",
        "_large",
        "_listener",
        "_mute_timer",
        "_outbox",
        "_queue",
        "_receive_bytes",
        "_rest",
        "_socket",
        "_turn_began",
        "active_at",
        "is_closed",
        "is_dirty",
        "session",
    )

    def __init__(self, connected: socket.socket, session: Session, listener: "Listener") -> None:
        self.session = session
        self.is_closed = False
        self.is_dirty = False
        """A response was completed outside of this connection's turn."""
        self.active_at = listener.now
        self._socket = connected
        self._fd = connected.fileno()
        self._listener = listener
        self._outbox = self._new_outbox(connected, listener)
        self._queue: deque[Reply] = deque()
        self._in_flight = 0
        """Pending requests in the queue."""
        self._held: Reply | None = None
        self._rest = b""
        self._large: LargeFrame | None = None
        self._receive_bytes = RECEIVE_BYTES
        self._is_ending = False
        self._mute_timer: asyncio.TimerHandle | None = None
        """The client is throttled until then: its requests are not read."""
        self._turn_began = 0.0
        """When the event loop called; 0 if the time since then is not charged to the client."""
        self._is_paused = False
        """The socket is not watched for reading."""
        self._is_sending = False
        """Completed responses have not been sent entirely."""
        self._is_stalled = False
        """`_rest` contains complete frames that are not processed yet."""
        self._is_waiting_for_memory = False
        self._is_writing = False
        listener.loop.add_reader(self._fd, self.readable)

    def _new_outbox(self, connected: socket.socket, listener: "Listener") -> Outbox:
        return Outbox(connected, listener.sender, self._sender_is_back)

    @property
    def is_idle(self) -> bool:
        """True if no response is pending."""
        return not self._queue and self._outbox.is_empty

    @property
    def is_mid_request(self) -> bool:
        """True if a request was received in part."""
        is_ours_to_solve = self._is_stalled or self._is_waiting_for_memory
        return self._large is not None or (bool(self._rest) and not is_ours_to_solve)

    def readable(self) -> None:
        """Event loop callback: the socket is readable or closed."""
        self.active_at = self._listener.now
        if self._is_paused:
            return
        woken_s = 0.0 if self.session.meter is None else self._listener.woken_seconds()
        self.session.received = self._turn_began = monotonic()
        try:
            if self._is_full():
                self._wait_or_close()
            elif self._large is not None:
                self._receive_large(self._large)
            else:
                self._receive()
        except BlockingIOError:
            pass
        except OSError as error:
            self.close(error.strerror or "connection lost")
        except Exception as bug:  # noqa: BLE001 - the listener logs it
            # A bug closes this connection only. Throttled, because a client may be able to repeat it.
            self._listener.warn("serving %s failed", self.session.client_host, bug=bug)
            self.close("internal error")
        meter = self.session.meter
        if meter is not None:
            if self._turn_began:
                self._charge(meter, self._turn_began - woken_s)
            self._turn_began = 0.0

    def _charge(self, meter: Callable[[float], None], began: float) -> None:
        """The client is charged the time of the event loop since then."""
        meter(monotonic() - began)
        self._listener.charged_at = thread_time()

    def _wait_or_close(self) -> None:
        """Read nothing now, but detect that the peer has closed the connection."""
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
            self.close("closed during a request")
            return
        large.received += received
        if large.is_complete:
            self._serve_large(large)

    def _serve_large(self, large: LargeFrame) -> None:
        self._large = None
        frame = large.frame
        self.session.loan = loan = Loan(partial(self._listener.memory.give_back, large))
        try:
            self._turn(partial(self._serve_frame, frame), loan)
        finally:
            self.session.loan = None
            loan.done()
        self._flush()

    def _serve(self, buffer: memoryview, end: int) -> None:
        """Process all complete frames of the buffer and keep the rest."""
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
            self._listener.busy_poll.response_sent()
        else:
            # Sent after all readable connections were processed: a peer that receives many responses at
            # once sends many requests at once, which then cost one receive, one write and one send.
            self._answer_ready()

    def _turn(
        self, serve: Callable[[list[Reply]], tuple[int, str]], loan: Loan | None = None
    ) -> tuple[int, str]:
        """Pass frames to the service and finish the turn; returns the result of `serve`."""
        service = self._listener.service
        replies: list[Reply] = []
        outcome = (0, "")
        goodbye: str | None = None
        try:
            outcome = serve(replies)
        except CloseConnection as reason:
            goodbye = str(reason)
        finally:
            # Earlier requests of the turn are completed even if a later one failed.
            service.finish_turn(loan)
        for reply in replies:
            if not reply.is_filled:
                reply.on_filled = self._answer_ready
                if reply.mutes_connection:
                    self._held = reply
            self._in_flight += reply.count
        self._queue.extend(replies)
        session = self.session
        if session.is_metered:
            session.is_metered = False
        else:
            # Its requests are exempt from the quota of time, if there is one.
            self._turn_began = 0.0
        if session.throttle_ms:
            self._mute()
        if goodbye is not None:
            self._flush()
            self.close(goodbye, warn=True)
        return outcome

    def _serve_frame(self, frame: memoryview, replies: list[Reply]) -> tuple[int, str]:
        """Process a frame in its own buffer."""
        size = len(frame)
        return self._listener.service.serve(frame, 0, size, size, self.session, replies, 1), ""

    def _serve_frames(self, buffer: memoryview, end: int, replies: list[Reply]) -> tuple[int, str]:
        """Pass frames to the service; returns the end of those processed, and the error of the next one."""
        serve, session = self._listener.service.serve, self.session
        authentication = session.authentication
        limit = listener_limit = self._listener.request_bytes_max
        position = seen = 0
        room = REQUESTS_IN_FLIGHT_MAX - self._in_flight
        unsent_bytes = self._outbox.memory_bytes
        is_full = False
        deadline = self._turn_began + SERVE_SECONDS_MAX
        while end - position >= 4:
            (size_bytes,) = _SIZE(buffer, position)
            after = position + 4 + size_bytes
            if authentication is not None:
                limit = authentication.request_bytes_max(listener_limit)
            if not 0 < size_bytes <= limit:
                if not is_full:
                    return position, f"a request of {size_bytes} bytes, the limit is {limit}"
            elif after > end:
                break
            if is_full:
                self._is_stalled = True
                break
            position = serve(buffer, position + 4, after, end, session, replies, room)
            is_full = session.throttle_ms > 0 or monotonic() >= deadline
            for reply in replies[seen:]:
                room -= reply.count
                unsent_bytes += reply.size_bytes
                is_full |= reply.mutes_connection and not reply.is_filled
            seen = len(replies)
            is_full |= room <= 0 or unsent_bytes >= ANSWER_BYTES_PENDING_MAX
        return position, ""

    def _keep_incomplete(self, piece: memoryview) -> None:
        """Keep the start of a frame: small ones as bytes, large ones in their own buffer."""
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
        """Read no more requests; pending ones are completed."""
        self._is_ending = True
        self._pause()

    def _is_full(self) -> bool:
        """True if too many responses are pending or unsent."""
        return (
            self._held is not None
            or self._is_ending
            or self._mute_timer is not None
            or self._in_flight >= REQUESTS_IN_FLIGHT_MAX
            or self._outbox.memory_bytes >= ANSWER_BYTES_PENDING_MAX
        )

    def _mute(self) -> None:
        """Stop processing for the throttle time; frames already received wait as well."""
        delay_ms, self.session.throttle_ms = self.session.throttle_ms, 0
        loop = self._listener.loop
        ends_at = loop.time() + delay_ms / 1000
        if self._mute_timer is not None:
            ends_at = max(ends_at, self._mute_timer.when())
            self._mute_timer.cancel()
        self._mute_timer = loop.call_at(ends_at, self._unmute)

    def _unmute(self) -> None:
        self._mute_timer = None
        meter = self.session.meter
        if meter is None or self._is_stalled:
            # Waiting frames are a turn of their own.
            self._resume()
            return
        began = monotonic() - self._listener.woken_seconds()
        self._resume()
        self._charge(meter, began)

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._listener.loop.remove_reader(self._fd)

    def _resume(self) -> None:
        """Process waiting frames, then resume reading, unless still blocked."""
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
        """Send responses that were completed outside of this connection's turn, and resume."""
        self.is_dirty = False
        if self.is_closed:
            return
        meter = self.session.meter
        if meter is None:
            self._flush()
            return
        self._turn_began = began = monotonic() - self._listener.woken_seconds()
        self._flush()
        self._turn_began = 0.0
        self._charge(meter, began)

    def _flush(self) -> None:
        queue = self._queue
        parts: Parts = []
        count = memory_bytes = 0
        hangs_up, reason = False, ""
        while queue and queue[0].is_filled:
            reply = queue.popleft()
            if reply.is_silent:
                self._in_flight -= reply.count
                continue
            if not reply.parts:
                hangs_up, reason = True, reply.close_reason
                break
            parts += reply.parts
            memory_bytes += reply.size_bytes
            self._in_flight -= reply.count
            count += 1
            if reply.close_reason:
                hangs_up, reason = True, reply.close_reason
                break
        if count > 1 and len(parts) == count and memory_bytes <= JOINED_BYTES_MAX:
            # Single buffers, no file slices: one copy is cheaper than a list of buffers for the kernel.
            parts = [b"".join(cast("list[bytes]", parts))]
        if parts:
            self._send(parts)
        if self.session.throttle_ms and not self.is_closed:
            # A response that was completed outside of its turn throttles the client.
            self._mute()
        if hangs_up:
            self.close(reason, warn=True)
        else:
            self._sent_ready()

    def _sent_ready(self) -> None:
        """All responses that are ready are sent: continue with what waited for them."""
        if self._held is not None and self._held.is_filled:
            self._held = None
        if (self._is_stalled or self._is_paused) and self._mute_timer is None:
            self._listener.loop.call_soon(self._resume)

    def _send(self, parts: Parts) -> None:
        meter = None if self._turn_began else self.session.meter
        began = monotonic() if meter is not None else 0.0
        try:
            self._outbox.send(parts, self._listener.has_others_to_send_to(self._is_sending))
        except OSError as error:
            self.close(error.strerror or "connection lost")
            return
        if meter is not None:
            meter(monotonic() - began)
        self._watch_writing()

    def _watch_writing(self) -> None:
        """Watch for writability while there is more to send and the thread does not send it."""
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
        """Event loop callback: the socket is writable."""
        self.active_at = self._listener.now
        meter = self.session.meter
        began = monotonic() if meter is not None else 0.0
        try:
            self._outbox.push(self._listener.has_others_to_send_to(self._is_sending))
        except OSError as error:
            self.close(error.strerror or "connection lost")
            return
        if meter is not None:
            meter(monotonic() - began)
        self._watch_writing()
        if self._is_paused or self._is_stalled:
            self._resume()

    def _sender_is_back(self, failure: OSError | None) -> None:
        if failure is not None:
            self.close(failure.strerror or "connection lost")
        else:
            self.writable()

    def close(self, reason: str, warn: bool = False) -> None:
        """Close the socket and release all resources."""
        if self.is_closed:
            return
        self.is_closed = True
        if reason:
            say = self._listener.warn if warn else log.debug
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
        if self._mute_timer is not None:
            self._mute_timer.cancel()
            self._mute_timer = None
        # Its callback refers to this connection: neither would be freed.
        self._held = None
        self._rest = b""
        self._listener.closed(self)
