"""Transactional ids, each of which belongs to one process for good.

Taking an id over aborts what its last holder has open. An id that only one process uses cannot be taken over
by another task that was thought dead, so a part that is waiting for its decision is safe. A process uses an
id again when the note tells of the batch that it was used for, or a later one, and does not name the id: then
its part was not decided, and never will be, or is of a batch whose end was seen to. That keeps the number of
ids that a broker must remember (for a week) near twice the number of Python workers.
"""

import itertools
import os
import re
import secrets
from dataclasses import dataclass, field

from runnel.pipelines.sink.decision import Note

NONCE_BYTES = 8


@dataclass(slots=True)
class IdPool:
    """The ids of this process, and the batch that each was used for last."""

    process_id: int = field(default_factory=os.getpid)
    nonce: str = field(default_factory=lambda: secrets.token_hex(NONCE_BYTES))
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _used: dict[str, dict[str, int]] = field(default_factory=dict)

    def new(self, name: str) -> str:
        """An id that was never used, and will not be given again."""
        return f"{name}-{self.nonce}-{next(self._numbers)}"

    def take(self, name: str, batch: int, note: Note | None) -> str:
        """An id under a query's name for a batch, when the note is this: nothing decided is open under it."""
        ids = self._used.setdefault(name, {})
        named = set() if note is None else {part.transactional_id for part in note.parts}
        told = -1 if note is None else note.batch
        for transactional_id, last_batch in ids.items():
            # Of a batch that the note does not tell of yet, a decision may still be under way.
            if last_batch < batch and last_batch <= told and transactional_id not in named:
                ids[transactional_id] = batch
                return transactional_id
        new = self.new(name)
        ids[new] = batch
        return new


def id_pattern(name: str) -> str:
    """The ids of a name, as a regular expression: not those of a name that only begins like it."""
    return rf"{re.escape(name)}-[0-9a-f]{{{2 * NONCE_BYTES}}}-\d+"


_pools: dict[int, IdPool] = {}


def own_pool() -> IdPool:
    """The pool of this very process; one that was inherited through a fork belongs to the parent."""
    return _pools.setdefault(os.getpid(), IdPool())
