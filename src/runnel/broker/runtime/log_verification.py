"""Verification of replicas in the background: after an unclean stop, and where a fetch was repeated.

Recovery verifies only what may not be durable. Damage below that is detected by reads of old records only,
and a damaged replica may be elected; so the rest is verified as well where other replicas have the records,
slowly, in a thread.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from runnel.broker.runtime.promise import settled
from runnel.model.errors import ApiError

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker
    from runnel.broker.runtime.replicated_log import ReplicatedLog

log = logging.getLogger("runnel.broker")

CHUNK_BYTES = 1024 * 1024
BYTES_PER_SECOND = 64 * 1024 * 1024
"""The rate at which replicas are verified after an unclean stop."""
PAUSE_RATIO = 3
"""The pause after a chunk, as a multiple of the time it took: a busy machine verifies slower."""
SUSPECTED_MAX = 1_000
"""Partitions that wait for the verification of single offsets."""


class LogVerification:
    """Verifies the logs of one node, one chunk at a time."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._logs: list[ReplicatedLog] = []
        """Those to be verified as a whole, the next one last."""
        self._suspected: dict[ReplicatedLog, int] = {}
        """The offsets to be verified first."""
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self.verified_bytes = 0

    def start(self) -> None:
        """Verify the replicas that were not closed cleanly."""
        broker = self._broker
        for name, partition in broker.partitions.items():
            state = broker.metadata.image.partition(*name)
            if state is not None and len(state.replicas) > 1 and not broker.disk.was_closed_cleanly(name):
                self._logs.append(partition)
        if self._logs:
            log.info("%d replicas were not closed cleanly: they are verified", len(self._logs))
            self._run_soon()

    def suspect(self, partition: "ReplicatedLog", offset: int) -> None:
        """A reader could not use the records at this offset, or did not receive them: verify them soon."""
        if len(self._suspected) < SUSPECTED_MAX:
            self._suspected[partition] = offset
            self._run_soon()

    async def close(self) -> None:
        """Stop."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _run_soon(self) -> None:
        if self._task is None and not self._is_closed:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._suspected or self._logs:
                if self._suspected:
                    await self._verify_suspected()
                else:
                    await self._verify_log(self._logs.pop())
        except Exception as bug:  # noqa: BLE001 - reported
            self._broker.bugs.report(bug, "a replica could not be verified")
        finally:
            self._task = None

    async def _verify_suspected(self) -> None:
        partition = next(iter(self._suspected))
        await self._verify_chunk(partition, self._suspected.pop(partition))

    async def _verify_log(self, partition: "ReplicatedLog") -> None:
        offset: int | None = partition.log.log_start_offset
        end_offset = partition.log.written_offset
        while offset is not None and offset < end_offset:
            if self._suspected:
                await self._verify_suspected()
            offset = await self._verify_chunk(partition, offset)

    async def _verify_chunk(self, partition: "ReplicatedLog", offset: int) -> int | None:
        """Verify some batches; the offset after them, or None if the rest need not be verified."""
        broker = self._broker
        begun_ms = broker.clock.monotonic_ms()
        if broker.partitions.get(partition.name) is not partition or partition.log.failure is not None:
            return None
        try:
            verified = await settled(partition.load(partition.log.verify(offset, CHUNK_BYTES)))
        except ApiError as error:
            log.info("%s is not verified from offset %d on: %s", partition.name, offset, error)
            return None
        self.verified_bytes += verified.size_bytes
        if verified.damage is not None:
            partition.on_damaged(partition, verified.damage)
            return None
        took_ms = broker.clock.monotonic_ms() - begun_ms
        await asyncio.sleep(max(verified.size_bytes / BYTES_PER_SECOND, PAUSE_RATIO * took_ms / 1000))
        return verified.next_offset if verified.next_offset > offset else None
