"""Elections of this node in a new epoch, for its partitions that may have lost visible records.

    require ──► rejects writes ───► elected ──► leads in a new epoch
                      ▲                │ the metadata log cannot be written
                      └── a second ────┘

In the old epoch, consumers that had read beyond the end could not detect that other records are written at
the offsets of lost ones (KIP-320). Reads are served meanwhile. Until all are elected, the data directory is
not closed cleanly, so that the next start elects them.
"""

import logging
from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from runnel.controller.unclean_start import decide_reelections
from runnel.model.errors import ApiError
from runnel.model.ids import TopicPartition

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

log = logging.getLogger("runnel.broker")

PARTITIONS_PER_CHANGE = 1000
"""Elections per metadata batch; they are independent of each other."""

RETRY_DELAY_MS = 1000

_ELECTIONS = "elections are pending"


class Elections:
    """The partitions of one broker with a pending election."""

    __slots__ = ("_broker", "_has_failed", "_is_running", "_is_started", "_running", "_waiting")

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._waiting: dict[TopicPartition, None] = {}
        self._running: dict[TopicPartition, None] = {}
        """Partitions whose election is being committed."""
        self._is_running = self._is_started = False
        self._has_failed = False

    def __contains__(self, name: TopicPartition) -> bool:
        return name in self._waiting or name in self._running

    def require(self, names: Iterable[TopicPartition]) -> None:
        """Reject writes to these partitions until `run` has elected their leader."""
        for name in names:
            self._waiting[name] = None
            partition = self._broker.partitions.get(name)
            if partition is not None:
                partition.suspend()
        if self._waiting:
            self._broker.disk.unclean.add(_ELECTIONS)

    def lost_records(self, name: TopicPartition) -> None:
        """This partition was truncated below its high watermark."""
        self.require([name])
        self._run_soon()

    def start(self) -> None:
        """The partitions are open and follow the metadata: elect in the background from now on."""
        self._is_started = True
        self._run_soon()

    def _run_soon(self) -> None:
        if self._waiting and self._is_started and not self._is_running:
            self._broker.run(self.run())

    async def run(self) -> None:
        """Elect all pending partitions; failures are retried in the background."""
        self._is_running = True
        while self._waiting and await self._run_some():
            pass
        self._is_running = False
        if not self._waiting:
            self._broker.disk.unclean.discard(_ELECTIONS)

    async def _run_some(self) -> bool:
        broker = self._broker
        self._running = dict.fromkeys(islice(self._waiting, PARTITIONS_PER_CHANGE))
        for name in self._running:
            del self._waiting[name]
        try:
            await broker.metadata.change(partial(decide_reelections, self._running, broker.node_id))
        except Exception as error:  # noqa: BLE001 - retried
            self._waiting.update(self._running)
            self._failed(error)
            return False
        finally:
            self._running = {}
        self._has_failed = False
        return True

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, ApiError):
            self._broker.bugs.report(error, "leader epochs cannot be raised")
        elif not self._has_failed:
            # Usually the disk is full.
            log.error("leader epochs cannot be raised after lost records, which is retried: %s", error)
        self._has_failed = True
        self._broker.timers.call_later(RETRY_DELAY_MS, self._run_soon)
