"""The quota of a replication throttle: bytes ahead of the rate are a debt, which it reduces."""

from dataclasses import dataclass

UNLIMITED = 2**63 - 1


@dataclass(slots=True)
class ReplicationQuota:
    """One direction of the replication of a broker."""

    rate: int = UNLIMITED
    """Bytes per second."""
    _debt_bytes: float = 0.0
    """What was replicated ahead of the rate."""
    _now_ms: int = 0

    def record(self, size_bytes: int, now_ms: int) -> None:
        """Bytes were replicated."""
        self._pay(now_ms)
        self._debt_bytes += size_bytes

    def is_exceeded(self, now_ms: int) -> bool:
        """Must throttled replicas wait?"""
        self._pay(now_ms)
        return self.rate == 0 or self._debt_bytes > 0

    def delay_ms(self, now_ms: int) -> int:
        """When they may continue, at the present rate; -1 for never."""
        if not self.is_exceeded(now_ms):
            return 0
        return -1 if self.rate == 0 else int(self._debt_bytes * 1000 / self.rate) + 1

    def _pay(self, now_ms: int) -> None:
        passed_ms, self._now_ms = now_ms - self._now_ms, now_ms
        self._debt_bytes = max(self._debt_bytes - self.rate * passed_ms / 1000, 0.0)
