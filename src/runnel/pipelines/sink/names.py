"""Transactional ids, each owned by one process.

InitProducerId aborts the open transaction of the previous holder. An id used by a single process cannot be
taken over by a zombie task, so a part that awaits its commit is safe. A process reuses an id once the commit
marker is at the batch that the id was used for, or a later one, and does not contain the id: its part was
then not committed and never will be, or belongs to a completed batch. The number of ids that a broker must
keep (for a week) is thus about twice the number of Python workers.
"""

import itertools
import os
import re
import secrets
from dataclasses import dataclass, field

from runnel.pipelines.sink.decision import CommitMarker

NONCE_BYTES = 8


@dataclass(slots=True)
class TransactionalIdPool:
    """The ids of this process, and the last batch that used each."""

    process_id: int = field(default_factory=os.getpid)
    nonce: str = field(default_factory=lambda: secrets.token_hex(NONCE_BYTES))
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _used: dict[str, dict[str, int]] = field(default_factory=dict)

    def new(self, name: str) -> str:
        """An id that was never used and will not be reused."""
        return f"{name}-{self.nonce}-{next(self._numbers)}"

    def take(self, name: str, batch: int, marker: CommitMarker | None) -> str:
        """An id for a batch of a query, given the current marker: it has no committed part open."""
        ids = self._used.setdefault(name, {})
        named = set() if marker is None else {part.transactional_id for part in marker.parts}
        committed_batch = -1 if marker is None else marker.batch
        for transactional_id, last_batch in ids.items():
            # The commit of a batch after the marker may still be in progress.
            if last_batch < batch and last_batch <= committed_batch and transactional_id not in named:
                ids[transactional_id] = batch
                return transactional_id
        new = self.new(name)
        ids[new] = batch
        return new


def id_pattern(name: str) -> str:
    """A regular expression for the ids of a name, but not of longer names with the same prefix."""
    return rf"{re.escape(name)}-[0-9a-f]{{{2 * NONCE_BYTES}}}-\d+"


_pools: dict[int, TransactionalIdPool] = {}


def process_pool() -> TransactionalIdPool:
    """The pool of the current process; one inherited through fork belongs to the parent."""
    return _pools.setdefault(os.getpid(), TransactionalIdPool())
