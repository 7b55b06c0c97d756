"""One member of a classic group."""

from collections.abc import Iterable
from dataclasses import dataclass

NEVER_MS = 2**63 - 1

Protocols = tuple[tuple[str, bytes], ...]
"""The assignment protocols of a member in order of preference: (name, metadata). Metadata is opaque."""


@dataclass(slots=True)
class Member:
    """A member of a classic group."""

    id: str
    instance_id: str | None
    """Identifies a static member across restarts (KIP-345)."""
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """Its first join is not completed, so it does not know its member id yet."""
    deadline_ms: int = NEVER_MS
    """When its session expires, in monotonic time."""
    timer_ms: int = NEVER_MS
    """When its timer checks the deadline. Heartbeats move only the deadline, because timers are expensive."""

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def record_heartbeat(self, now_ms: int) -> None:
        """Extend the session; never moves the deadline closer."""
        deadline_ms = now_ms + self.session_timeout_ms
        if deadline_ms > self.deadline_ms:
            self.deadline_ms = deadline_ms

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata for a protocol; empty if it does not support the protocol."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


def select_protocol(preferences: Iterable[Protocols]) -> str | None:
    """The protocol that all members support and most of them prefer; None if they have none in common.

    Ties are broken in favor of the first vote.
    """
    rankings = [[name for name, _ in protocols] for protocols in preferences]
    if not rankings:
        return None
    common = set(rankings[0]).intersection(*rankings[1:])
    votes: dict[str, int] = {}
    for ranking in rankings:
        choice = next((name for name in ranking if name in common), None)
        if choice is not None:
            votes[choice] = votes.get(choice, 0) + 1
    return max(votes, key=votes.__getitem__, default=None)
