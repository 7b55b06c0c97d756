"""Free ports for nodes that are started later, or again, reserved so that nothing else takes them."""

import atexit
import socket
from collections import deque

RESERVED_MAX = 200
"""Older reservations are released: a process that starts many clusters one after the other does not run out
of file descriptors."""

_reserved: deque[socket.socket] = deque()


def free_ports(host: str, count: int) -> list[int]:
    """Ports without a listener, which the system does not give away while this process runs.

    They stay bound here without listening. A node may still listen on them, as often as it is started,
    because both sockets allow their address to be reused; outgoing connections and other searches for a free
    port avoid them.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ports = []
    for _ in range(count):
        reserved = socket.socket(family)
        reserved.bind((host, 0))
        # Set afterwards, as no two reservations may share a port.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if len(_reserved) >= RESERVED_MAX:
            _reserved.popleft().close()
        _reserved.append(reserved)
        ports.append(reserved.getsockname()[1])
    return ports


def is_free(host: str, port: int) -> bool:
    """Can this port be bound now?"""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


@atexit.register
def _release() -> None:
    while _reserved:
        _reserved.pop().close()
