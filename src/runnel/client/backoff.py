"""How long to keep trying, and how long to wait between two tries."""

import asyncio
import random

from runnel.client.errors import ClientError

BACKOFF_MIN_S = 0.02
BACKOFF_MAX_S = 1.0


class Backoff:
    """A deadline with pauses that double, spread by chance so that many clients do not knock together."""

    def __init__(self, timeout_s: float) -> None:
        self._deadline_s = asyncio.get_running_loop().time() + timeout_s
        self._pause_s = BACKOFF_MIN_S

    @property
    def remaining_s(self) -> float:
        """What remains of the time that was given."""
        return self._deadline_s - asyncio.get_running_loop().time()

    async def after(self, error: ClientError) -> None:
        """Wait before the next try; raises `error` if another try is of no use or out of time."""
        if not error.retriable or self.remaining_s <= 0:
            raise error
        pause_s = self._pause_s * (0.8 + 0.4 * random.random())
        self._pause_s = min(2 * self._pause_s, BACKOFF_MAX_S)
        await asyncio.sleep(min(pause_s, max(self.remaining_s, 0)))
