"""Transactional ids, each of which belongs to one process for good.

Taking an id over aborts what its last holder has open. An id that only one process uses cannot be taken over
by another task that was thought dead, so a part that is waiting for its decision is safe. A process uses an
id again when a later batch of the same query begins: by then everything of the batches before has ended.
That keeps the number of ids that a broker must remember (for a week) near the number of Python workers.
"""

import itertools
import os
import secrets
from dataclasses import dataclass, field


@dataclass(slots=True)
class IdPool:
    """The ids of this process, and the batch that each was used for last."""

    process_id: int = field(default_factory=os.getpid)
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _used: dict[str, dict[str, int]] = field(default_factory=dict)

    def take(self, name: str, batch: int) -> str:
        """An id under a query's name that no transaction of this batch or a later one can be open under."""
        ids = self._used.setdefault(name, {})
        for transactional_id, last_batch in ids.items():
            if last_batch < batch:
                ids[transactional_id] = batch
                return transactional_id
        # Numbers never come back, so an id cannot either.
        new = f"{name}-{self.nonce}-{next(self._numbers)}"
        ids[new] = batch
        return new


_pools: dict[int, IdPool] = {}


def own_pool() -> IdPool:
    """The pool of this very process; one that was inherited through a fork belongs to the parent."""
    return _pools.setdefault(os.getpid(), IdPool())
