"""What a sniffer sees of the connections between clients and nodes of a cluster with TLS."""

import ctypes
import socket
import ssl
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from runnel.messages.metadata import MetadataRequest, MetadataRequestTopic
from runnel.messages.sasl_authenticate import SaslAuthenticateRequest
from runnel.messages.sasl_handshake import SaslHandshakeRequest
from runnel.testing import Broker
from runnel.wire.frame import request_frame
from tools.certificates import CaFolder

ETHERNET_IPV4 = 0x0800
ETHERNET_BYTES = 14
TCP = 6
SOL_PACKET, PACKET_STATISTICS = 263, 6
SO_RCVBUFFORCE, SO_ATTACH_FILTER = 33, 26
LOAD_HALF, LOAD_BYTE, LOAD_HALF_BEHIND, LOAD_IP_HEADER_BYTES = 0x28, 0x30, 0x48, 0xB1
JUMP_IF_EQUAL, RETURN = 0x15, 0x06
RECEIVE_BUFFER_BYTES = 64 << 20
TOPIC, GROUP = "payroll-of-the-company", "auditors-of-payrolls"
USER, PASSWORD = "alice-of-accounting", "hunter2-on-the-wire"
SMALL, LARGE = b"a small secret record;", b"a large secret record;"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SECRETS = (SMALL, LARGE, TOPIC.encode(), GROUP.encode(), PASSWORD.encode(), USER.encode())
LARGE_COUNT = 30
"""Records of 100 KB: more than a fetch sends from memory."""


def port_filter(ports: Iterable[int]) -> bytes:
    """A program of the kernel's packet filter (classic BPF): TCP segments from or to these ports."""
    ports = list(ports)
    checks = 2 * len(ports)
    program = [
        (LOAD_HALF, 0, 0, 12),
        (JUMP_IF_EQUAL, 0, checks + 5, ETHERNET_IPV4),
        (LOAD_BYTE, 0, 0, 23),
        (JUMP_IF_EQUAL, 0, checks + 3, TCP),
        (LOAD_IP_HEADER_BYTES, 0, 0, ETHERNET_BYTES),
    ]
    for at in (ETHERNET_BYTES, ETHERNET_BYTES + 2):
        program.append((LOAD_HALF_BEHIND, 0, 0, at))
        # To the last instruction, which accepts.
        last = 4 + checks + 4
        program += [
            (JUMP_IF_EQUAL, last - len(program) - number - 1, 0, port) for number, port in enumerate(ports)
        ]
    program += [(RETURN, 0, 0, 0), (RETURN, 0, 0, 1 << 18)]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


class Capture:
    """TCP segments of the loopback interface from or to some ports, by connection and direction."""

    def __init__(self, ports: Iterable[int]) -> None:
        self.streams: defaultdict[tuple[int, int], bytearray] = defaultdict(bytearray)
        self.lost = 0
        # It receives nothing before it is bound.
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        program = ctypes.create_string_buffer(code := port_filter(ports))
        described = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(program))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, described)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
        self._socket.bind(("lo", ETHERNET_IPV4))
        self._socket.settimeout(0.2)
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, name="capture")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Call it when the ports are not used any more."""
        self._is_ending = True
        self._thread.join()
        self.lost = struct.unpack("II", self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]
        self._socket.close()

    def _run(self) -> None:
        packet = bytearray(1 << 18)
        while True:
            try:
                size, address = self._socket.recvfrom_into(packet)
            except TimeoutError:
                if self._is_ending:
                    return
                continue
            # The loopback interface shows every packet twice.
            if address[2] != socket.PACKET_OUTGOING:
                self._add(memoryview(packet)[ETHERNET_BYTES:size])

    def _add(self, packet: memoryview) -> None:
        (total,) = struct.unpack_from(">H", packet, 2)
        tcp = packet[(packet[0] & 15) * 4 : total or len(packet)]
        source, target = struct.unpack_from(">HH", tcp)
        self.streams[source, target] += tcp[(tcp[12] >> 4) * 4 :]

    @property
    def seen(self) -> bytes:
        return b"\n".join(self.streams.values())


@contextmanager
def capture(ports: Iterable[int]) -> Iterator[Capture]:
    try:
        capturing = Capture(ports)
    except PermissionError:
        pytest.skip("capturing packets needs root")
    capturing.start()
    try:
        yield capturing
    finally:
        capturing.stop()


def ports_of(cluster: Broker) -> set[int]:
    """The ports of all listeners, also of the controllers."""
    return {
        int(listener.rpartition(":")[2])
        for node in cluster.nodes
        for listener in node.settings["listeners"].split(",")
    }


@contextmanager
def captured_broker(broker: Broker) -> Iterator[tuple[Broker, Capture]]:
    """A broker or cluster, and what is sent from its start to its end."""
    with ExitStack() as stack, broker:
        captured = stack.enter_context(capture(ports_of(broker)))
        yield broker, captured


def use(config: dict[str, str]) -> None:
    """Small and large records, produced and consumed, the last one by a fetch that waits for it."""
    consumer = Consumer(
        {**config, "group.id": GROUP, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 1_000}
    )
    producer = Producer({**config, "acks": "all", "linger.ms": 0})
    admin = AdminClient(config)
    admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(60)
    for _ in range(20):
        producer.produce(TOPIC, SMALL, SMALL)
    for _ in range(LARGE_COUNT):
        producer.produce(TOPIC, LARGE * 4_500)
    assert producer.flush(60) == 0
    consumer.subscribe([TOPIC])
    for number in range(20 + LARGE_COUNT + 1):
        if number == 20 + LARGE_COUNT:
            assert consumer.poll(0.5) is None
            producer.produce(TOPIC, SMALL)
        message = consumer.poll(60)
        assert message is not None and not message.error()
    consumer.close()
    assert producer.flush(60) == 0


def use_again(port: int, ca: Path) -> bool:
    """Two connections, of which the second resumes the session of the first; whether it did."""
    context = ssl.create_default_context(cafile=str(ca))
    session: ssl.SSLSession | None = None
    is_resumed: bool | None = False
    for _ in range(2):
        with (
            socket.create_connection(("127.0.0.1", port), timeout=20) as connection,
            context.wrap_socket(connection, server_hostname="127.0.0.1", session=session) as secured,
        ):
            requests = (
                (SaslHandshakeRequest("PLAIN"), 1),
                (SaslAuthenticateRequest(f"\0{USER}\0{PASSWORD}".encode()), 1),
                (MetadataRequest([MetadataRequestTopic(name=TOPIC)]), 4),
            )
            for request, version in requests:
                secured.sendall(
                    b"".join(bytes(part) for part in request_frame(request, version, 1, "client"))
                )
                size = int.from_bytes(secured.recv(4), "big")
                response = b""
                while len(response) < size:
                    response += secured.recv(size - len(response))
            assert TOPIC.encode() in response
            session, is_resumed = secured.session, secured.session_reused
    return bool(is_resumed)


def tls_settings(folder: Path) -> tuple[dict[str, str], Path]:
    ca = CaFolder(folder)
    node = ca.issue("node", "127.0.0.1")
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(node.pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca.certificate),
    }, ca.certificate


def test_a_secured_cluster_sends_no_clear_text(tmp_path: Path) -> None:
    tls, ca = tls_settings(tmp_path)
    jaas = f'{PLAIN} username="node" password="{PASSWORD}" user_node="{PASSWORD}" user_{USER}="{PASSWORD}";'
    settings = {
        **tls,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "sasl.jaas.config": jaas,
    }
    with captured_broker(Broker(settings, nodes=3, security_protocol="SASL_SSL")) as (cluster, captured):
        # It authenticates at the others again.
        cluster.nodes[2].restart()
        use(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(ca),
                "sasl.mechanism": "PLAIN",
                "sasl.username": USER,
                "sasl.password": PASSWORD,
            }
        )
        assert use_again(cluster.port, ca)
        wait_for_followers(cluster)
    assert captured.lost == 0
    seen = captured.seen
    # Produced once, sent to two followers, and consumed once.
    assert len(seen) > 4 * LARGE_COUNT * len(LARGE) * 4_500
    assert [secret for secret in SECRETS if secret in seen] == []


def wait_for_followers(cluster: Broker) -> None:
    """Until every node has stored the large records."""
    folders = [Path(node.data_dir) / f"{TOPIC}-0" for node in cluster.nodes]
    deadline = time.monotonic() + 60
    while any(
        sum(path.stat().st_size for path in folder.glob("*.log")) < LARGE_COUNT * len(LARGE) * 4_500
        for folder in folders
    ):
        assert time.monotonic() < deadline, "a follower has not replicated"
        time.sleep(0.1)


def test_without_tls_a_capture_shows_everything() -> None:
    with captured_broker(Broker()) as (broker, captured):
        use({"bootstrap.servers": broker.bootstrap_servers})
    seen = captured.seen
    assert all(secret in seen for secret in (SMALL, LARGE, TOPIC.encode(), GROUP.encode()))
