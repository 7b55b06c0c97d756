"""One member of a group."""

from collections.abc import Iterable
from dataclasses import dataclass

NEVER_MS = 2**63 - 1

Protocols = tuple[tuple[str, bytes], ...]
"""What a member can be assigned by, most wanted first: (name, metadata). Metadata is between clients."""


@dataclass(slots=True)
class Member:
    """A client that shares the work of its group."""

    id: str
    instance_id: str | None
    """A name that survives restarts of the client (KIP-345); such a member is static."""
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """It has not seen the answer to its first join, so it does not know its id yet."""
    deadline_ms: int = NEVER_MS
    """When, on the steady clock, silence will count as death."""
    timer_ms: int = NEVER_MS
    """When its timer will look at the deadline. Heartbeats move the deadline only, as timers are dear."""

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def record_heartbeat(self, now_ms: int) -> None:
        """A sign of life at this time of the steady clock; it never brings the deadline closer."""
        deadline_ms = now_ms + self.session_timeout_ms
        if deadline_ms > self.deadline_ms:
            self.deadline_ms = deadline_ms

    def metadata(self, protocol: str | None) -> bytes:
        """What it said about a protocol; nothing if it does not know it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


def select_protocol(preferences: Iterable[Protocols]) -> str | None:
    """The protocol that all members know and most of them want; None if they have none in common.

    Among equals, the one that was voted for first.
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
