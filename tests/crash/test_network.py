"""Network namespaces: nodes reach each other except where packets are dropped."""

import subprocess
import time
from collections.abc import Iterator

import pytest

from tools.cluster import network as networks
from tools.cluster.network import CLIENTS, NAMESPACES, Network, network
from tools.processes import child

MISSING = networks.missing()
pytestmark = [pytest.mark.root, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]

SEND = "import socket, sys; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', (sys.argv[1], 9))"
RECEIVE = (
    "import socket\n"
    "receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
    "receiver.bind(('0.0.0.0', 9))\n"
    "print('ready', flush=True)\n"
    "print(receiver.recvfrom(1)[1][0])\n"
)
DELIVERY_S = 0.2
"""A datagram that is not dropped arrives within this time, whether its receiver runs or not."""


@pytest.fixture
def joined() -> Iterator[Network]:
    with network([1, 2, 3]) as built:
        yield built


def receives(joined: Network, sender: int, receiver: int) -> bool:
    """Whether a datagram arrives before one that the receiver sends to itself afterwards."""
    with child(
        [*joined.inside(receiver), "python3", "-c", RECEIVE], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for origin in (sender, receiver):
            send = [*joined.inside(origin), "python3", "-c", SEND, joined.address(receiver)]
            subprocess.run(send, check=True)
            time.sleep(DELIVERY_S)
        return bool(process.stdout.readline().strip() == joined.address(sender))


def test_packets_are_dropped_in_one_direction_until_healed(joined) -> None:
    assert receives(joined, 1, 2)
    assert receives(joined, CLIENTS, 2)
    joined.cut([(1, 2), (2, 3)])
    assert not receives(joined, 1, 2)
    assert receives(joined, 2, 1)
    assert receives(joined, CLIENTS, 2)
    joined.cut([(2, 3)])
    assert receives(joined, 1, 2)
    assert not receives(joined, 2, 3)
    joined.heal()
    assert receives(joined, 2, 3)


def test_nothing_is_left_behind() -> None:
    with network([1]) as built:
        name = built.name
        assert list(NAMESPACES.glob(f"{name}-*"))
    assert not list(NAMESPACES.glob(f"{name}-*"))
