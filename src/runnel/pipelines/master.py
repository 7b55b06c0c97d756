"""Validation of the Spark master URL."""

import re
import socket

from runnel.pipelines.errors import NoSpark

_LOCAL = re.compile(r"local(\[(\*|\d+)(, ?\d+)?\])?|local-cluster\[\d+, ?\d+, ?\d+\]")
_STANDALONE = re.compile(r"spark://(?P<addresses>[^/,\s]+:\d+(,[^/,\s]+:\d+)*)")
_OTHERS = ("yarn", "k8s://")
_CONNECT_S = 5.0


def is_local(master: str) -> bool:
    """Does Spark run inside the Java process of this driver?"""
    return master.startswith("local")


def is_on_loopback(master: str) -> bool:
    """Is the master on this machine, so that the driver can bind to the loopback address?"""
    return is_local(master) or all(
        host in ("127.0.0.1", "localhost", "::1") for host, _ in _standalone_addresses(master) or [("", 0)]
    )


def check_master(master: str) -> None:
    """Reject invalid masters, and unreachable ones, for which Spark would retry for a minute."""
    if _LOCAL.fullmatch(master) or master.startswith(_OTHERS):
        return
    addresses = _standalone_addresses(master)
    if not addresses:
        raise NoSpark(
            f"{master!r} is not a Spark master; use local[*], local[4], spark://HOST:PORT, yarn or k8s://…"
        )
    reasons = [reason for address in addresses if (reason := _reason_against(address)) is not None]
    if len(reasons) == len(addresses):
        raise NoSpark(f"no Spark master is reachable at {master}: {'; '.join(reasons)}")


def _standalone_addresses(master: str) -> list[tuple[str, int]]:
    match = _STANDALONE.fullmatch(master)
    if match is None:
        return []
    pairs = (address.rpartition(":") for address in match["addresses"].split(","))
    return [(host.strip("[]"), int(port)) for host, _, port in pairs]


def _reason_against(address: tuple[str, int]) -> str | None:
    try:
        socket.create_connection(address, timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        return f"{address[0]}:{address[1]} {getattr(error, 'strerror', None) or error}"
    return None
