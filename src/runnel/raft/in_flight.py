"""Requests in flight: at most one per peer and lane, and a backoff after a failure.

Fetches have a lane of their own, as they wait at the leader, and a request behind one would wait as well.
"""

from dataclasses import dataclass, field
from enum import Enum

from runnel.raft.values import Fetch, FetchSnapshot, Peer, Request, Send


class Lane(Enum):
    """Which requests share a connection."""

    ELECTION = "election"
    FETCH = "fetch"

    @classmethod
    def of(cls, request: Request) -> "Lane":
        """The lane of a request."""
        return cls.FETCH if isinstance(request, Fetch | FetchSnapshot) else cls.ELECTION


@dataclass(slots=True)
class Slot:
    """The request in flight to one peer on one lane."""

    sent: Send | None = None
    ready_ms: int = 0
    """When the next request may be sent."""


@dataclass(slots=True)
class InFlightRequests:
    """The requests in flight of the current role."""

    _slots: dict[tuple[Peer, Lane], Slot] = field(default_factory=dict)

    def clear(self) -> None:
        """The role has changed: replies to earlier requests are ignored."""
        self._slots.clear()

    def slot(self, peer: Peer, lane: Lane) -> Slot:
        """The slot of this peer and lane."""
        return self._slots.setdefault((peer, lane), Slot())

    def peers(self, lane: Lane) -> list[Peer]:
        """The peers to which requests were sent in this role."""
        return [peer for peer, used in self._slots if used is lane]

    def ended(self, sent: Send, ready_ms: int) -> bool:
        """The request was answered or failed; False if it belongs to an earlier role."""
        slot = self._slots.get((sent.peer, Lane.of(sent.request)))
        if slot is None or slot.sent is not sent:
            return False
        slot.sent = None
        slot.ready_ms = ready_ms
        return True
