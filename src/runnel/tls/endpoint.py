"""One side of a TLS connection, without a socket.

    received bytes ─► `received` ─► `read_into` ─► clear bytes    (`unseal` does both)
    clear bytes    ─► `seal`     ─► `output`    ─► bytes to send

Its owner moves the bytes. It must not be used by two threads at once.
"""

import ssl

SEALED_BYTES = 64 * 1024
"""How much is taken in before it is decrypted: OpenSSL keeps memory for the most that it ever held."""

HANDSHAKE_RECORD = 0x16
"""The first byte of a TLS connection."""


class TlsEndpoint:
    """The state of a TLS connection."""

    __slots__ = ("_incoming", "_object", "_outgoing", "has_more", "is_ended", "is_established")

    def __init__(
        self, context: ssl.SSLContext, *, is_server: bool = True, server_name: str | None = None
    ) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(
            self._incoming, self._outgoing, server_side=is_server, server_hostname=server_name
        )
        self.is_established = False
        self.has_more = False
        """The last read ended because its room was full."""
        self.is_ended = False
        """The peer closed its side."""

    @property
    def peer_certificate(self) -> bytes | None:
        """The verified certificate of the peer in DER format, if it sent one."""
        return self._object.getpeercert(binary_form=True)

    @property
    def version(self) -> str | None:
        """The version of TLS, once established."""
        return self._object.version()

    def received(self, data: bytes | memoryview) -> None:
        """Take in bytes of the peer."""
        self._incoming.write(data)

    def handshake(self) -> bool:
        """Continue the handshake; whether it is complete. Raises ssl.SSLError."""
        if not self.is_established:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                return False
            self.is_established = True
        return True

    def read_into(self, room: memoryview) -> int:
        """Read clear bytes until the room is full or a record is incomplete. Raises ssl.SSLError."""
        read = 0
        size = len(room)
        self.has_more = False
        incoming, read_record = self._incoming, self._object.read
        while read < size:
            try:
                count: int = read_record(size - read, room[read:])  # type: ignore[assignment]
            except ssl.SSLWantReadError:
                return read
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                count = 0
            if not count:
                self.is_ended = True
                return read
            read += count
            if not incoming.pending and read < size:
                # The last record was read entirely. An attempt to read another raises, which takes longer.
                return read
        self.has_more = True
        return read

    def unseal(self, sealed: memoryview, room: memoryview) -> int:
        """Take in any number of bytes and read into the room what they contain. Raises ssl.SSLError."""
        read = 0
        for position in range(0, len(sealed), SEALED_BYTES):
            self.received(sealed[position : position + SEALED_BYTES])
            read += self.read_into(room[read:])
        return read

    def seal(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt bytes; `output` has them."""
        written = self._object.write(data)
        assert written == len(data), "a memory BIO takes everything"

    @property
    def has_output(self) -> bool:
        """Whether there are bytes to send to the peer."""
        return self._outgoing.pending > 0

    def output(self) -> bytes:
        """The bytes to send to the peer."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def close(self) -> None:
        """Tell the peer that nothing follows; `output` has the message."""
        if self.is_established:
            try:
                self._object.unwrap()
            except ssl.SSLError:
                # It waits for the peer's own message, which will not be read, or the connection has failed.
                return
