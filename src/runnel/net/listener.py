"""A listening socket and its connections."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from math import inf
from time import thread_time
from typing import TYPE_CHECKING

from runnel.net.admission import Admission, ListenerLimits
from runnel.net.busy_poll import BusyPoll
from runnel.net.client_warnings import ClientWarnings
from runnel.net.connection import LARGE_FRAME_BYTES, RECEIVE_BYTES, Connection
from runnel.net.file_sender import FileSender
from runnel.ports.service import Service, Session

if TYPE_CHECKING:
    from runnel.tls.server import ServerTls

ACCEPTS_PER_EVENT = 64
"""Connections accepted per event, so that a connection storm cannot starve existing ones."""

ACCEPT_PAUSE_SECONDS = 0.5
"""Pause of accepting when the process is out of file descriptors."""

PROBE_INTERVAL = 16
"""How often a connection that seems to be the only active one checks for others."""

HELD_CONNECTIONS_MAX = 1000
"""Connections above the rate of their address that are held open; more are closed at once."""

STALLED_REQUEST_SECONDS = 60
"""Timeout of an incomplete request without progress, which holds receive memory."""

LOGIN_SECONDS_MAX = 10
"""How long a client of a SASL listener may take to authenticate."""

HANDSHAKE_SECONDS = 10
"""Timeout of a TLS handshake."""

HANDSHAKES_PER_ITERATION = 8
"""A handshake takes a millisecond or more: this many are continued before other connections are served."""

WAKE_UP_SECONDS_MAX = 0.0001
"""What the event loop itself takes at most before a callback; in more, others were served."""

HANDSHAKES_MAX = 1000
"""TLS handshakes at a time; beyond this, the oldest gives way to the next: it is probably not continued."""

log = logging.getLogger("runnel.net")


class Listener:
    """Accepts connections, enforces limits, closes idle connections, and shuts down gracefully."""

    open_session: Callable[[Session], None] | None = None
    """Prepares the sessions of a listener whose clients authenticate."""

    def __init__(
        self,
        service: Service,
        name: str,
        admission: Admission | None = None,
        tls: "ServerTls | None" = None,
    ) -> None:
        self.service = service
        self.name = name
        self.loop = asyncio.get_running_loop()
        self.admission = admission or Admission()
        """Limits, possibly shared with other listeners."""
        self.request_bytes_max = self.limits.request_bytes_max
        self.memory = self.admission.memory
        # Shared by all connections: its contents are only valid during a turn.
        self.buffer = memoryview(bytearray(RECEIVE_BYTES + 2 * LARGE_FRAME_BYTES))
        self.tls = tls
        self._connection: type[Connection] = Connection
        if tls is not None:
            self._use_tls()
        self.handshaking: dict[Connection, float] = {}
        """Connections whose TLS handshake is not complete, with their times of arrival; the oldest first."""
        self._login_timers: dict[Connection, asyncio.TimerHandle] = {}
        """When clients that have connected recently must be authenticated."""
        self._handshakes_now = 0
        """Handshakes that were continued, or would have been, in this iteration of the event loop."""
        self.sender = FileSender(self.loop)
        self.busy_poll = BusyPoll(self.loop)
        self.sending_count = 0
        """Connections with unsent responses."""
        self.connections: set[Connection] = set()
        self.now = self.loop.time()
        """Time of the last sweep: precise enough for idle timeouts, and free to read."""
        self.charged_at = 0.0
        """CPU time of the event loop when a callback whose time is charged to a client ended last."""
        self._warnings = ClientWarnings(name, self.now)
        self._dirty: list[Connection] = []
        self._served_together = 0
        """Number of connections with responses in the last iteration of the event loop."""
        self._sent_at_once = 0
        self._unflushed = 0
        """Dirty connections that are not flushed yet."""
        self._next_connection_id = 0
        self._held: set[socket.socket] = set()
        """Connections that will be closed without being read."""
        self._is_accepting = False
        self._socket: socket.socket | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self.admission.when_room(self._accept_again)

    def _use_tls(self) -> None:
        # Most listeners of most brokers do not need it.
        from runnel.net.tls_connection import TlsConnection

        self._connection = TlsConnection
        self.sealed = memoryview(bytearray(RECEIVE_BYTES))
        """Where encrypted bytes are received."""

    @property
    def limits(self) -> ListenerLimits:
        """The limits in force."""
        return self.admission.limits

    def listen(self, host: str, port: int) -> int:
        """Bind and accept; returns the port, chosen by the system if 0 is given."""
        bound_port = self.bind(host, port)
        self.accept()
        return bound_port

    def bind(self, host: str, port: int) -> int:
        """Bind the address; connections wait in the kernel's backlog until `accept`. Returns the port."""
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self.limits.receive_buffer_bytes > 0:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.limits.receive_buffer_bytes)
            listening.bind(address)
            listening.listen(self.limits.backlog)
            listening.setblocking(False)
        except OSError:
            listening.close()
            raise
        self._socket = listening
        bound_port: int = listening.getsockname()[1]
        return bound_port

    def accept(self) -> None:
        """Start to accept connections."""
        if self._sweep is None:
            self._sweep_later()
        self._accept_again()

    def dirty(self, connection: Connection) -> None:
        """A response of this connection was completed outside of its turn."""
        if not self._dirty:
            self.loop.call_soon(self._flush_dirty)
        self._dirty.append(connection)

    def may_shake_hands(self) -> bool:
        """Whether a handshake may continue in this iteration of the event loop."""
        if not self._handshakes_now:
            self.loop.call_soon(self._begin_iteration)
        self._handshakes_now += 1
        return self._handshakes_now <= HANDSHAKES_PER_ITERATION

    def _begin_iteration(self) -> None:
        self._handshakes_now = 0

    def established(self, connection: Connection) -> None:
        """The TLS handshake of a connection is complete."""
        self.handshaking.pop(connection, None)

    def woken_seconds(self) -> float:
        """What waking up took since a client was charged; 0 if others were served since."""
        seconds = thread_time() - self.charged_at
        return seconds if seconds <= WAKE_UP_SECONDS_MAX else 0.0

    def closed(self, connection: Connection) -> None:
        """The connection was closed."""
        self.connections.discard(connection)
        self.handshaking.pop(connection, None)
        login_timer = self._login_timers.pop(connection, None)
        if login_timer is not None:
            # It refers to the connection, which is not freed before.
            login_timer.cancel()
        self.service.closed(connection.session)
        self.admission.closed(connection)

    def warn(self, message: str, *arguments: object, bug: Exception | None = None) -> None:
        """Log a throttled warning about a client, or a bug that it triggered."""
        self._warnings.warn(self.loop.time(), message, *arguments, bug=bug)

    async def close(self, grace_seconds: float = 5.0) -> None:
        """Stop accepting, send pending responses, then close all connections."""
        self._stop()
        for connection in self.connections:
            connection.stop_reading()
        self.service.ending()
        deadline = self.loop.time() + grace_seconds
        while self.loop.time() < deadline and not all(connection.is_idle for connection in self.connections):
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.close("")
        self.sender.close()
        # Slices of the sender thread are released by its callbacks.
        await asyncio.sleep(0)
        self._warnings.report_suppressed()

    def abort(self) -> None:
        """Close everything at once, as if the process was killed: pending responses are not sent."""
        self._stop()
        for connection in list(self.connections):
            connection.close("")
        self.sender.close()

    def _stop(self) -> None:
        if self._socket is not None:
            self._stop_accepting()
            self._socket.close()
            self._socket = None
        if self._pause is not None:
            self._pause.cancel()
        if self._sweep is not None:
            self._sweep.cancel()
        for connected in list(self._held):
            self._release(connected)

    def has_others_to_send_to(self, counts_itself: bool) -> bool:
        """True if the event loop has other responses to send while a thread sends this one."""
        return self.sending_count > counts_itself or self._unflushed > 0

    def sends_at_once(self) -> bool:
        """True if a connection should send its responses now, not after all readable ones were processed.

        Deferring costs an iteration of the event loop, without benefit if no other connection is active.
        """
        if self._dirty or self._served_together > 1:
            return False
        self._sent_at_once = (self._sent_at_once + 1) % PROBE_INTERVAL
        return self._sent_at_once != 0

    def _flush_dirty(self) -> None:
        dirty, self._dirty = self._dirty, []
        self._served_together = len(dirty)
        self._unflushed = len(dirty)
        for connection in dirty:
            self._unflushed -= 1
            connection.flush()
        if self._served_together == 1:
            self.busy_poll.response_sent()

    def _accept_again(self) -> None:
        has_begun = self._sweep is not None
        if self._socket is None or not has_begun or self._is_accepting or self.admission.is_full:
            return
        self._is_accepting = True
        self.loop.add_reader(self._socket.fileno(), self._acceptable)

    def _stop_accepting(self) -> None:
        if self._socket is not None and self._is_accepting:
            self._is_accepting = False
            self.loop.remove_reader(self._socket.fileno())

    def _rest(self, seconds: float) -> None:
        self._stop_accepting()
        if self._pause is not None:
            self._pause.cancel()
        self._pause = self.loop.call_later(seconds, self._accept_again) if seconds < inf else None

    def _acceptable(self) -> None:
        for _ in range(ACCEPTS_PER_EVENT):
            if self._socket is None:
                return
            if self.admission.is_full:
                # Others wait in the kernel's backlog until a connection is closed, as in Kafka.
                count = self.admission.count
                self.warn("%s: %d connections, the limit of max.connections", self.name, count)
                self._stop_accepting()
                return
            wait_seconds = self.admission.wait_seconds()
            if wait_seconds > 0:
                self._rest(wait_seconds)
                return
            try:
                connected, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                log.error("%s: cannot accept a connection: %s", self.name, error.strerror)
                self._rest(ACCEPT_PAUSE_SECONDS)
                return
            self.admission.counted()
            self._accepted(connected, address)

    def _accepted(self, connected: socket.socket, address: tuple[str, int]) -> None:
        host, port = address[0], address[1]
        if not self.admission.permits(host):
            self.warn("%s: rejected %s, it has reached the connection limit per address", self.name, host)
            connected.close()
            return
        hold_ms = self.admission.hold_ms(host)
        if hold_ms:
            self._hold(connected, hold_ms)
            return
        try:
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self.limits.send_buffer_bytes > 0:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.limits.send_buffer_bytes)
        except OSError:
            connected.close()
            return
        self._next_connection_id += 1
        session = Session(host, port, self.name, self._next_connection_id)
        if self.open_session is not None:
            self.open_session(session)
        connection = self._connection(connected, session, self)
        if session.authentication is not None:
            timer = self.loop.call_later(LOGIN_SECONDS_MAX, self._end_login, connection)
            self._login_timers[connection] = timer
        self.connections.add(connection)
        self.admission.opened(connection)
        if self.tls is not None:
            self._shake_hands(connection)

    def _shake_hands(self, connection: Connection) -> None:
        """A connection has to complete its TLS handshake in time."""
        if len(self.handshaking) >= HANDSHAKES_MAX:
            oldest = next(iter(self.handshaking))
            oldest.close(f"its TLS handshake gave way to others, {HANDSHAKES_MAX} are open", warn=True)
        self.handshaking[connection] = self.loop.time()

    def _hold(self, connected: socket.socket, hold_ms: int) -> None:
        """Close a connection above the rate of its address after some time, so that its client is slowed."""
        if len(self._held) >= HELD_CONNECTIONS_MAX:
            connected.close()
            return
        self._held.add(connected)
        self.loop.call_later(hold_ms / 1000, self._release, connected)

    def _release(self, connected: socket.socket) -> None:
        self._held.discard(connected)
        connected.close()

    def _end_login(self, connection: Connection) -> None:
        del self._login_timers[connection]
        authentication = connection.session.authentication
        if authentication is not None and not authentication.was_completed:
            connection.close("not authenticated in time", warn=True)

    def _sweep_later(self) -> None:
        idle_seconds = self.limits.idle_max_ms / 1000 if self.limits.idle_max_ms > 0 else 60
        self._sweep = self.loop.call_later(min(max(idle_seconds / 4, 0.05), 5), self._sweep_idle)

    def _sweep_idle(self) -> None:
        self.now = self.loop.time()
        idle_before = self.now - self.limits.idle_max_ms / 1000
        stalled_before = self.now - STALLED_REQUEST_SECONDS
        for connection in list(self.connections):
            if self.limits.idle_max_ms > 0 and connection.active_at < idle_before:
                connection.close("idle")
            elif connection.is_mid_request and connection.active_at < stalled_before:
                connection.close("incomplete request timed out", warn=True)
        for connection, opened_at in list(self.handshaking.items()):
            if opened_at >= self.now - HANDSHAKE_SECONDS:
                break
            connection.close("the TLS handshake timed out", warn=True)
        self._warnings.report_suppressed()
        self._sweep_later()
