"""Waiters for the commit of records."""

from typing import TYPE_CHECKING, Protocol

from runnel.model.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from runnel.replica.leader import LeaderReplica


class Ack(Protocol):
    """A waiter for everything below `end_offset` to be committed."""

    end_offset: int

    def committed(self) -> None: ...

    def failed(self, error: ApiError) -> None: ...


class ReplicatedAck:
    """A waiter of a producer with acks=all for followers, for a limited time."""

    __slots__ = ("_ack", "_leader", "deadline_ms", "end_offset")

    def __init__(self, ack: Ack, leader: "LeaderReplica", deadline_ms: int) -> None:
        self._ack = ack
        self._leader = leader
        self.end_offset = ack.end_offset
        self.deadline_ms = deadline_ms

    def committed(self) -> None:
        """The records are committed, but the producer may have required more replicas."""
        if self._leader.is_under_min_isr:
            why = "the records are committed, but fewer than min.insync.replicas are in sync by now"
            self._ack.failed(ApiError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, why))
        else:
            self._ack.committed()

    def failed(self, error: ApiError) -> None:
        self._ack.failed(error)

    def expire(self) -> None:
        """The records may still be committed later."""
        self._ack.failed(
            ApiError(ErrorCode.REQUEST_TIMED_OUT, "not all in-sync replicas have the records yet")
        )
