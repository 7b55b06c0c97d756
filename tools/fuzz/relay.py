"""A TCP proxy that records requests."""

import socket
import socketserver
import struct
import threading
from contextlib import suppress
from io import BufferedIOBase

SIZE = struct.Struct(">i")
COPIED_BYTES = 1 << 16


class Relay:
    """Loopback connections to a broker; whole requests are kept in the order they came, while recording."""

    def __init__(self, broker_port: int) -> None:
        self.broker_port = broker_port
        self.is_recording = True
        self.frames: list[bytes] = []
        self._server = _Server(self)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="relay")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> "Relay":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Proxied(socketserver.StreamRequestHandler):
    """One client's connection, and the one to the broker that belongs to it."""

    server: "_Server"

    def handle(self) -> None:
        # Either side may disconnect at any time, which disconnects the other.
        with suppress(OSError), self._broker() as broker:
            back = threading.Thread(target=_pour, args=(broker, self.connection), daemon=True)
            back.start()
            try:
                self._forward(broker)
            finally:
                _end(broker)
                back.join()

    def _broker(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.relay.broker_port))

    def _forward(self, broker: socket.socket) -> None:
        relay = self.server.relay
        while (frame := read_frame(self.rfile)) is not None:
            if relay.is_recording:
                relay.frames.append(frame)
            broker.sendall(frame)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, relay: Relay) -> None:
        super().__init__(("127.0.0.1", 0), _Proxied)
        self.relay = relay


def read_frame(stream: BufferedIOBase) -> bytes | None:
    """The next request with its length prefix; None where no whole one follows."""
    head = stream.read(SIZE.size)
    if len(head) < SIZE.size:
        return None
    (size_bytes,) = SIZE.unpack(head)
    body = stream.read(size_bytes)
    return head + body if len(body) == size_bytes else None


def _pour(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(COPIED_BYTES):
            target.sendall(data)
    _end(target)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
