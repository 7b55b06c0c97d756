"""How long failed authentications are answered late, by the address of the client.

Each address may fail `BURST` times, and then `PER_SECOND_MAX` times a second: further answers wait for their
turn, up to `DELAY_MS_MAX`. Clients of the same address that know their password are not delayed.
"""

BURST = 20
PER_SECOND_MAX = 10
DELAY_MS_MAX = 10_000
ADDRESSES_MAX = 10_000
"""Addresses that are remembered; the one that is known for longest is forgotten first."""


class LoginFailures:
    """The recent failures of each address."""

    def __init__(self) -> None:
        self._turns: dict[str, float] = {}
        """When the next failure of an address would be due if failures came at the permitted rate."""

    def failed(self, address: str, now_ms: int) -> int:
        """An authentication failed; returns how many milliseconds its answer must wait at least."""
        turn_ms = max(self._turns.pop(address, 0.0), float(now_ms)) + 1000 / PER_SECOND_MAX
        delay_ms = min(turn_ms - now_ms - BURST * 1000 / PER_SECOND_MAX, DELAY_MS_MAX)
        # Failures beyond the longest delay do not lengthen it for those that follow.
        self._turns[address] = min(turn_ms, now_ms + DELAY_MS_MAX + BURST * 1000 / PER_SECOND_MAX)
        if len(self._turns) > ADDRESSES_MAX:
            del self._turns[next(iter(self._turns))]
        return max(0, int(delay_ms))
