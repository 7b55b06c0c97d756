"""Retries with exponential backoff."""

import asyncio
import random

from runnel.client.errors import ClientError

BACKOFF_MIN_S = 0.02
BACKOFF_MAX_S = 1.0


class Backoff:
    """Exponential backoff with jitter, up to a deadline."""

    def __init__(self, timeout_s: float) -> None:
        self._deadline_s = asyncio.get_running_loop().time() + timeout_s
        self._delay_s = BACKOFF_MIN_S

    @property
    def remaining_s(self) -> float:
        """The time until the deadline."""
        return self._deadline_s - asyncio.get_running_loop().time()

    async def after(self, error: ClientError) -> None:
        """Wait before the next attempt; raises `error` if it is not retriable or the deadline has passed."""
        if not error.retriable or self.remaining_s <= 0:
            raise error
        delay_s = self._delay_s * (0.8 + 0.4 * random.random())
        self._delay_s = min(2 * self._delay_s, BACKOFF_MAX_S)
        await asyncio.sleep(min(delay_s, max(self.remaining_s, 0)))
