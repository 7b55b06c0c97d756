"""uvicorn's protocols with what it lacks: limits for heads, trailers, incomplete messages and requests that
wait for others, and a way to drop a connection.

An application can only end a response. That waits until the client has read what is not sent yet, for ever if
it does not read: `runnel.abort` in the extensions of a scope closes the connection at once.
"""

import asyncio
import socket
import struct
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from runnel.gateway.http.bodies import ARRIVED, SHARE, Share
from runnel.gateway.http.limits import (
    BODY_S,
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    HEAD_READ_S,
    MESSAGE_PART_BYTES,
    PIPELINED_MAX,
    SOCKET_PART_BYTES,
    SOCKET_PINGS_MAX,
    SOCKET_QUEUED_MAX,
    STREAM_STUCK_S,
)
from runnel.gateway.http.responses import ABORT

if TYPE_CHECKING:
    from collections.abc import Sized

    from uvicorn._types import ASGI3Application, ASGIReceiveEvent, ASGISendEvent
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
    from websockets.frames import Frame
    from websockets.http11 import Request

    from runnel.gateway.app import Gateway
    from runnel.gateway.http.responses import Unsent

VIOLATION, BUSY = 1008, 1013
FRAME_BYTES = 100
"""A frame of a message as objects, without its content: a message may have a frame for each byte."""

TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: application/problem+json\r\nconnection: close\r\ncontent-length: 57\r\n\r\n"
    b'{"status":431,"title":"Request Header Fields Too Large"}\n'
)


def drop(transport: asyncio.Transport) -> None:
    """Close a connection with what is not sent, also in the kernel."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _has_arrived(cycle: "RequestResponseCycle") -> bool:
    return not cycle.more_body


class TooManyPipelined(Exception):
    """More requests wait for the response to another one than may."""


class Flow(FlowControl):
    """Does not read while requests wait: every response would let in as many as fit into a buffer."""

    def __init__(self, transport: "asyncio.Transport", pipeline: "Sized") -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        """What is read is not needed yet: the request that is served is complete if others follow it."""
        if not self._pipeline:
            super().resume_reading()


class HttpProtocol(HttpToolsProtocol):
    """A connection of HTTP/1.1."""

    _served: "RequestResponseCycle | None" = None
    """The request that is served; uvicorn has the last one that was received."""
    _is_in_head = False
    _advances = False
    _unused_bytes = 0
    _head_timer: "asyncio.TimerHandle | None" = None
    _unsent_timer: "asyncio.TimerHandle | None" = None

    def connection_made(self, transport: "asyncio.Transport") -> None:  # type: ignore[override]
        """A client has connected, and sends a request within a while."""
        super().connection_made(transport)
        self.flow = Flow(transport, self.pipeline)
        self._head_timer = self.loop.call_later(HEAD_READ_S, transport.abort)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed: what is served for it ends, and what waits for that is dropped."""
        self._stop_timer()
        self._stop_watching()
        self._unsent.forget(self)
        self.pipeline.clear()
        if self._served is not None and not self._served.response_complete:
            self._served.disconnected = True
            self._served.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what arrives without a complete head or a part of a body: the parser has no limit of its own.

        That is an endless header or trailer, or the extension of a chunk.
        """
        self._advances = False
        super().data_received(data)
        self._unused_bytes = 0 if self._advances else self._unused_bytes + len(data)
        if self._unused_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            is_answering = self.cycle is not None and self.cycle.response_started
            if is_answering and not self.cycle.response_complete:
                drop(self.transport)
            else:
                self.transport.write(TOO_LARGE)
                self.transport.close()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._is_in_head = self._advances = True
        super().on_message_begin()
        cast("dict[str, Any]", self.scope)["extensions"] = {ABORT: partial(drop, self.transport)}
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_READ_S, self.transport.abort)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; trailers are dropped: what was decided by headers is not changed afterwards."""
        if self._is_in_head:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """A part of a body."""
        self._advances = True
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """The headers of a request are complete."""
        self._is_in_head = False
        self._advances = True
        self._stop_timer()
        super().on_headers_complete()
        if self.cycle is not None:
            extensions = cast("dict[str, Any]", self.scope)["extensions"]
            extensions[ARRIVED] = partial(_has_arrived, self.cycle)
        if len(self.pipeline) > PIPELINED_MAX:
            # The parser stops at an error: what it has left would become requests, too.
            drop(self.transport)
            raise TooManyPipelined

    def _start_asgi_task(self, cycle: "RequestResponseCycle", app: "ASGI3Application") -> None:
        self._served = cycle
        super()._start_asgi_task(cycle, app)

    # A whole response is written at once: what its client does not read would be kept for ever.

    def on_response_complete(self) -> None:
        """A response is written, and perhaps not sent yet."""
        super().on_response_complete()
        self._watch_unsent()

    def pause_writing(self) -> None:
        """Much is not sent."""
        super().pause_writing()
        self._watch_unsent()

    def resume_writing(self) -> None:
        """Most of it is sent."""
        super().resume_writing()
        self._watch_unsent()

    def handle_websocket_upgrade(self) -> None:
        """Another protocol has the connection from here on, unless a response is still due."""
        self._stop_watching()
        self._unsent.forget(self)
        if self._served is not None and not self._served.response_complete:
            drop(self.transport)
        else:
            super().handle_websocket_upgrade()

    @property
    def unsent_bytes(self) -> int:
        """What was written and is not sent."""
        return 0 if self.transport.is_closing() else self.transport.get_write_buffer_size()

    def drop(self) -> None:
        """Close it at once."""
        drop(self.transport)

    def _watch_unsent(self) -> None:
        self._stop_watching()
        if unsent := self.transport.get_write_buffer_size():
            self._unsent_timer = self.loop.call_later(STREAM_STUCK_S, self._check_unsent, unsent)
        self._unsent.note(self)

    @property
    def _unsent(self) -> "Unsent":
        return cast("Gateway", self.config.app).unsent

    def _check_unsent(self, before: int) -> None:
        if self.transport.get_write_buffer_size() >= before:
            self.drop()
        else:
            self._watch_unsent()

    def _stop_watching(self) -> None:
        if self._unsent_timer is not None:
            self._unsent_timer.cancel()
            self._unsent_timer = None

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class SocketProtocol(WebSocketsSansIOProtocol):
    """A connection of a WebSocket.

    A message that is not complete is a body like others: it has a deadline, and a share of their memory.
    Closing waits for what is not sent, but not for ever.
    """

    _fragment_bytes = 0
    _unread_pings = 0
    _share: Share | None = None
    _message_timer: "asyncio.TimerHandle | None" = None
    _drop_timer: "asyncio.TimerHandle | None" = None

    def connection_made(self, transport: "asyncio.Transport") -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self._share = Share(cast("Gateway", self.config.app).api.bodies)
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        """Parse what is received unless many messages wait: reading is paused by then."""
        self._received += data
        self._parse()

    async def receive(self) -> "ASGIReceiveEvent":
        """The next message for the application."""
        message = await super().receive()
        self._parse()
        return message

    def _parse(self) -> None:
        if not self._received:
            return
        while self._received and self.queue.qsize() < SOCKET_QUEUED_MAX:
            part = bytes(self._received[:SOCKET_PART_BYTES])
            del self._received[:SOCKET_PART_BYTES]
            super().data_received(part)
            if self.transport.is_closing():
                self._received.clear()
        self._count_message()

    def _count_message(self) -> None:
        """Count what is received of a message, in complete frames and in one that is not."""
        self._watch_closing()
        if self.transport.is_closing():
            return
        begun_bytes = len(self.conn.reader.buffer) + self._fragment_bytes
        if not begun_bytes:
            self._stop_timer()
        elif self._message_timer is None:
            self._message_timer = self.loop.call_later(BODY_S, self._late)
        assert self._share is not None
        if self._share.resize(begun_bytes if begun_bytes > MESSAGE_PART_BYTES else 0) is not None:
            self._refuse(BUSY, "too many bodies are in flight")

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._stop_timer()
        if self._drop_timer is not None:
            self._drop_timer.cancel()
        if self._share is not None:
            self._share.count(0)
        super().connection_lost(exc)

    # All that may close the connection.

    def keepalive_timeout(self) -> None:
        """The client has not answered a ping."""
        super().keepalive_timeout()
        self._watch_closing()

    def shutdown(self) -> None:
        """The gateway stops."""
        super().shutdown()
        self._watch_closing()

    async def send(self, message: "ASGISendEvent") -> None:
        """The application sends, or closes."""
        await super().send(message)
        self._watch_closing()

    async def run_asgi(self) -> None:
        """Serve the connection, and close it."""
        await super().run_asgi()
        self._watch_closing()

    def _watch_closing(self) -> None:
        """Once it is closed, drop it after a while: a client that does not read would keep its memory."""
        is_closed = self.close_sent or self.transport.is_closing()
        if is_closed and not self.disconnected and self._drop_timer is None:
            self._drop_timer = self.loop.call_later(STREAM_STUCK_S, drop, self.transport)

    # Messages.

    def handle_ping(self) -> None:
        """A ping, which is answered; not without end if the answers are not read."""
        self._unread_pings = 0 if self.writable.is_set() else self._unread_pings + 1
        if self._unread_pings > SOCKET_PINGS_MAX:
            drop(self.transport)
        else:
            super().handle_ping()

    def handle_text(self, event: "Frame") -> None:
        """The first frame of a message."""
        self._fragment_bytes = len(event.data) + FRAME_BYTES
        super().handle_text(event)

    def handle_bytes(self, event: "Frame") -> None:
        """The first frame of a message."""
        self._fragment_bytes = len(event.data) + FRAME_BYTES
        super().handle_bytes(event)

    def handle_cont(self, event: "Frame") -> None:
        """Another frame of a message."""
        self._fragment_bytes += len(event.data) + FRAME_BYTES
        super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        """A message is complete; the next one has a time of its own."""
        self._fragment_bytes = 0
        self._stop_timer()
        super().send_receive_event_to_app()

    def _late(self) -> None:
        self._message_timer = None
        if self.read_paused:
            # Not its fault: what it has sent is not read.
            self._message_timer = self.loop.call_later(BODY_S, self._late)
        else:
            self._refuse(VIOLATION, f"the message was not complete after {BODY_S:g} s")

    def _refuse(self, code: int, reason: str) -> None:
        self.conn.fail(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.transport.close()
        self._watch_closing()

    def _stop_timer(self) -> None:
        if self._message_timer is not None:
            self._message_timer.cancel()
            self._message_timer = None

    def handle_connect(self, event: "Request") -> None:
        """A client asks for the upgrade."""
        super().handle_connect(event)
        if not self.close_sent:
            extensions = cast("dict[str, Any]", self.scope)["extensions"]
            extensions |= {ABORT: partial(drop, self.transport), SHARE: self._share}
