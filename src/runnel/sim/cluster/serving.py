"""The listeners of a simulated node: frames in, responses out, in the order of the shipped network layer."""

import asyncio
from collections import deque
from struct import Struct
from typing import Any, cast

from runnel.ports.disk import FileSlice
from runnel.ports.files import File
from runnel.ports.service import CloseConnection, Loan, Reply, Service, Session
from runnel.sim.cluster.network import Socket
from runnel.sim.cluster.scheduler import ProcessLoop

REQUESTS_PER_TURN_MAX = 1000

_SIZE = Struct(">i").unpack_from


class SimListener:
    """One listener of a node, and its connections."""

    def __init__(self, service: Service, name: str, loop: ProcessLoop) -> None:
        self.service = service
        self.name = name
        self.loop = loop
        self.is_serving = False
        """Connections that are opened before wait in the kernel's backlog."""
        self.connections: dict[ServedConnection, None] = {}
        self._accepted = 0

    def accept(self, socket: Socket) -> None:
        """A connection was opened."""
        self._accepted += 1
        self.connections[ServedConnection(self, socket, self._accepted)] = None

    def start(self) -> None:
        """Serve the connections that wait, and all that come."""
        self.is_serving = True
        for connection in list(self.connections):
            connection.resume()

    async def close(self, grace_seconds: float = 5.0) -> None:
        """Read no more requests, send pending responses, then close all connections."""
        for connection in self.connections:
            connection.stop_reading()
        self.service.ending()
        deadline = self.loop.time() + grace_seconds
        while self.loop.time() < deadline and not all(each.is_idle for each in self.connections):
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.close()


class ServedConnection:
    """The server's end of a connection."""

    def __init__(self, listener: SimListener, socket: Socket, number: int) -> None:
        self._listener = listener
        self._socket = socket
        self._session = Session(socket.peer.host, number, listener.name, number)
        self._rest = b""
        self._queue: deque[Reply] = deque()
        self._held: Reply | None = None
        """The next request waits for this response."""
        self._is_muted = self._is_ending = False
        socket.on_data = self._received
        socket.on_end = self._ended

    @property
    def is_idle(self) -> bool:
        """Have all requests been answered?"""
        return not self._queue

    def resume(self) -> None:
        """Serve what was received before."""
        while self._serve():
            pass

    def stop_reading(self) -> None:
        """Read no more requests."""
        self._is_ending = True

    def close(self) -> None:
        """Close the connection; pending requests need no response."""
        self._socket.close()
        self._forget()

    def _received(self, data: bytes) -> None:
        self._rest += data
        self.resume()

    def _ended(self, is_reset: bool) -> None:
        self._forget()

    def _forget(self) -> None:
        if self in self._listener.connections:
            del self._listener.connections[self]
            self._queue.clear()
            self._held = None
            self._listener.service.closed(self._session)

    def _is_blocked(self) -> bool:
        return (
            not self._listener.is_serving
            or self._held is not None
            or self._is_muted
            or self._is_ending
            or self._socket.is_closed
        )

    def _serve(self) -> bool:
        """Serve one turn: complete frames, up to one that holds the connection. False if there are none."""
        if self._is_blocked():
            return False
        # Not reused after the turn, so that a loan never needs to be returned.
        buffer, replies = memoryview(bytearray(self._rest)), list[Reply]()
        position, is_refused = 0, False
        try:
            position = self._serve_frames(buffer, replies)
        except CloseConnection:
            is_refused = True
        finally:
            self._listener.service.finish_turn(Loan(lambda: None))
        self._rest = bytes(buffer[position:])
        for reply in replies:
            if not reply.is_filled:
                reply.on_filled = self._flush_soon
                if reply.mutes_connection:
                    self._held = reply
        self._queue.extend(replies)
        self._mute()
        self._flush()
        if is_refused:
            self.close()
        return position > 0

    def _serve_frames(self, buffer: memoryview, replies: list[Reply]) -> int:
        service, session = self._listener.service, self._session
        position, end = 0, len(buffer)
        while end - position >= 4:
            (size_bytes,) = _SIZE(buffer, position)
            after = position + 4 + size_bytes
            if after > end:
                break
            position = service.serve(
                buffer, position + 4, after, end, session, replies, REQUESTS_PER_TURN_MAX
            )
            if session.throttle_ms or any(
                reply.mutes_connection and not reply.is_filled for reply in replies
            ):
                break
        return position

    def _mute(self) -> None:
        delay_ms, self._session.throttle_ms = self._session.throttle_ms, 0
        if delay_ms:
            self._is_muted = True
            self._listener.loop.call_later(delay_ms / 1000, self._unmute)

    def _unmute(self) -> None:
        self._is_muted = False
        self.resume()

    def _flush_soon(self) -> None:
        self._listener.loop.call_soon(self._flush)

    def _flush(self) -> None:
        while self._queue and self._queue[0].is_filled:
            reply = self._queue.popleft()
            if reply.is_silent:
                continue
            if not reply.parts:
                self.close()
                return
            self._socket.send(b"".join(_bytes_of(part) for part in reply.parts))
        if self._held is not None and self._held.is_filled:
            self._held = None
            self.resume()


def _bytes_of(part: Any) -> bytes | bytearray | memoryview:
    if isinstance(part, FileSlice):
        return cast(File, part.file).pread(part.length, part.position)
    return cast(bytes, part)
