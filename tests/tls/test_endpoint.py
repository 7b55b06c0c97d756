"""A side of a TLS connection: what is read does not depend on how the bytes arrive."""

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


def read(endpoint: TlsEndpoint, room_bytes: int) -> bytes:
    """What a connection reads after a receive."""
    data = b""
    room = memoryview(bytearray(room_bytes))
    while True:
        data += room[: endpoint.read_into(room)]
        if not endpoint.has_more:
            return data


pieces = st.lists(st.sampled_from([1, 100, RECORD_BYTES, RECORD_BYTES + 1, 50_000]), min_size=1, max_size=6)


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
            server.received(stream[:size])
            stream = stream[size:]
            data += read(server, room_bytes)
    assert data == clear
    assert server.is_ended is is_closed


def test_whole_records_are_read_without_a_vain_attempt(monkeypatch):
    """An attempt to read a record that has not begun takes as long as to decrypt one."""
    server, client = connected()
    attempts = 0
    read_record = TlsEndpoint._read_record

    def counted(endpoint: TlsEndpoint, room: memoryview) -> int:
        nonlocal attempts
        attempts += 1
        return read_record(endpoint, room)

    monkeypatch.setattr(TlsEndpoint, "_read_record", counted)
    client.seal(bytes(3 * RECORD_BYTES))
    server.received(client.output())
    assert len(read(server, 4 * RECORD_BYTES)) == 3 * RECORD_BYTES
    assert attempts == 3


def test_output_of_a_read():
    server, client = connected()
    assert not server.has_output
    server.seal(b"one")
    assert server.has_output
    client.received(server.output())
    assert not server.has_output
    assert read(client, 100) == b"one"
