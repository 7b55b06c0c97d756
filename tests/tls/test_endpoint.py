"""A side of a TLS connection: what is read does not depend on how the bytes arrive."""

import ssl

from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.tls.endpoint import TlsEndpoint
from tests.net.scripted import client_tls, server_tls

RECORD_BYTES = 16 * 1024


def connected() -> tuple[TlsEndpoint, TlsEndpoint]:
    """A server and a client after their handshake."""
    server = TlsEndpoint(server_tls().context)
    client = TlsEndpoint(client_tls(), is_server=False, server_name="localhost")
    for _ in range(3):
        client.handshake()
        server.received(client.output())
        server.handshake()
        client.received(server.output())
    assert server.is_established and client.is_established
    return server, client


def read(endpoint: TlsEndpoint, sealed: bytes, room_bytes: int) -> bytes:
    """What a connection reads of a receive."""
    room = memoryview(bytearray(room_bytes))
    data = bytes(room[: endpoint.unseal(memoryview(sealed), room)])
    while endpoint.has_more:
        data += room[: endpoint.read_into(room)]
    return data


pieces = st.lists(st.sampled_from([1, 100, RECORD_BYTES, RECORD_BYTES + 1, 150_000]), min_size=1, max_size=6)


@settings(max_examples=40)
@given(pieces, pieces, st.sampled_from([7_000, RECORD_BYTES, 200_000]), st.booleans())
def test_reads_do_not_depend_on_how_bytes_arrive(sealed, received, room_bytes, is_closed):
    server, client = connected()
    clear = b"".join(bytes([index + 1]) * size for index, size in enumerate(sealed))
    position = 0
    for size in sealed:
        client.seal(clear[position : position + size])
        position += size
    if is_closed:
        client.close()
    stream, data = client.output(), b""
    while stream:
        for size in received:
            data += read(server, stream[:size], room_bytes)
            stream = stream[size:]
    assert data == clear
    assert server.is_ended is is_closed


class CountedReads:
    """A TLS object that counts the attempts to read."""

    def __init__(self, reads: ssl.SSLObject) -> None:
        self._reads = reads
        self.attempts = 0

    def read(self, size_bytes: int, room: memoryview) -> object:
        self.attempts += 1
        return self._reads.read(size_bytes, room)


def test_whole_records_are_read_without_a_vain_attempt():
    """An attempt without a record raises an exception, for each small request."""
    server, client = connected()
    counted = CountedReads(server._object)
    server._object = counted  # type: ignore[assignment]
    client.seal(bytes(3 * RECORD_BYTES))
    assert len(read(server, client.output(), 4 * RECORD_BYTES)) == 3 * RECORD_BYTES
    assert counted.attempts == 3


def test_what_is_to_be_sent():
    server, client = connected()
    seen = [server.has_output]
    server.seal(b"one")
    seen.append(server.has_output)
    assert read(client, server.output(), 100) == b"one"
    seen.append(server.has_output)
    assert seen == [False, True, False]
