"""Network namespaces, one for each node and one for the clients, joined by a bridge. Requires root.

All links are in namespaces of their own, so that several networks can exist side by side, and the one of the
machine is not touched. Packets are dropped by nftables at the receiver.
"""

import ctypes
import ipaddress
import os
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tools.fetch.debian import unpacked
from tools.fetch.programs import Unavailable

PURPOSE = "partition the network"
SUBNET = ipaddress.ip_network("10.77.0.0/24")
NAMESPACES = Path("/run/netns")
CLIENTS = 0
"""The number of the clients' namespace; those of nodes are their ids."""
NEEDED = ("ip", "nsenter")
CLONE_NEWNET = 0x40000000
LIBRARIES = Path("usr/lib") / f"{os.uname().machine}-linux-gnu"

Cut = tuple[int, int]
"""Sender and receiver whose packets are dropped."""


def missing() -> str | None:
    """Why there can be no such network here, or None."""
    if os.geteuid() != 0:
        return "network namespaces require root"
    absent = [name for name in NEEDED if shutil.which(name) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    try:
        _nft()
    except Unavailable as reason:
        return str(reason)
    return None


@dataclass(slots=True)
class Network:
    """A bridge that joins the namespaces of nodes and clients."""

    name: str
    members: set[int] = field(default_factory=set)
    cuts: frozenset[Cut] = frozenset()

    def address(self, member: int) -> str:
        """The address of a node, or of the clients."""
        return str(SUBNET[100 + member])

    def namespace(self, member: int) -> str:
        return f"{self.name}-{member}"

    def inside(self, member: int) -> list[str]:
        """What to put before a command so that it runs in the namespace of `member`."""
        return ["nsenter", f"--net={NAMESPACES / self.namespace(member)}"]

    def add(self, member: int) -> None:
        """Connect a node, or the clients."""
        namespace, link = self.namespace(member), f"link{member}"
        self.members.add(member)
        _run("ip", "netns", "add", namespace)
        peer = ["type", "veth", "peer", "name", "eth0", "netns", namespace]
        _run("ip", "-n", self._hub, "link", "add", link, *peer)
        _run("ip", "-n", self._hub, "link", "set", link, "master", "bridge", "up")
        _run("ip", "-n", namespace, "address", "add", f"{self.address(member)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run("ip", "-n", namespace, "link", "set", device, "up")

    def cut(self, cuts: Iterable[Cut]) -> None:
        """Drop packets between exactly these pairs, each in one direction."""
        wanted = frozenset(cuts)
        changed = {receiver for _, receiver in wanted ^ self.cuts}
        self.cuts = wanted
        for receiver in sorted(changed & self.members):
            self._filter(receiver, [sender for sender, to in sorted(wanted) if to == receiver])

    def heal(self) -> None:
        self.cut(())

    def _filter(self, receiver: int, senders: list[int]) -> None:
        rules = "add table inet cuts; flush table inet cuts; delete table inet cuts;"
        if senders:
            addresses = ", ".join(self.address(sender) for sender in senders)
            rules += (
                "add table inet cuts;"
                "add chain inet cuts input { type filter hook input priority 0; };"
                f"add rule inet cuts input ip saddr {{ {addresses} }} drop;"
            )
        command, environment = _nft()
        _run(*self.inside(receiver), *command, rules, environment=environment)

    @property
    def _hub(self) -> str:
        return f"{self.name}-hub"

    def open(self) -> None:
        _run("ip", "netns", "add", self._hub)
        _run("ip", "-n", self._hub, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", self._hub, "link", "set", "bridge", "up")
        self.add(CLIENTS)

    def close(self) -> None:
        for namespace in [self._hub, *map(self.namespace, self.members)]:
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)


@contextmanager
def network(nodes: Iterable[int]) -> Iterator[Network]:
    """A network that exists as long as the block."""
    built = Network(f"runnel-{os.getpid()}")
    try:
        built.open()
        for node in nodes:
            built.add(node)
        yield built
    finally:
        built.close()


@contextmanager
def entered(namespace: Path) -> Iterator[None]:
    """This process is in the network namespace meanwhile, with all threads and processes that it starts."""
    if threading.active_count() > 1:
        raise RuntimeError("threads that are running already would stay behind")
    library = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/self/ns/net").open() as before, namespace.open() as wanted:
        _set_namespace(library, wanted.fileno())
        try:
            yield
        finally:
            _set_namespace(library, before.fileno())


def _set_namespace(library: ctypes.CDLL, file: int) -> None:
    if library.setns(file, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


def _nft() -> tuple[list[str], dict[str, str]]:
    """The command of nftables, and the environment it needs."""
    installed = shutil.which("nft")
    if installed is not None:
        return [installed], dict(os.environ)
    folder = unpacked("nftables", ["nftables", "libnftables1", "libnftnl11"], PURPOSE)
    libraries = {"LD_LIBRARY_PATH": str(folder / LIBRARIES)}
    return [str(folder / "usr/sbin/nft")], {**os.environ, **libraries}


def _run(*command: str, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")
