"""Producer ids: allocated in blocks from the cluster metadata."""

import asyncio
from typing import TYPE_CHECKING

from runnel.controller.image import MetadataImage
from runnel.controller.result import ControllerResult
from runnel.schemas.metadata import ProducerIdsRecord

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

BLOCK_SIZE = 1000
"""Block size, as in Kafka: a crash wastes at most one block, and one producer in a thousand has to wait."""


class ProducerIds:
    """The block of ids that only this broker, since its last start, may allocate from."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._next_id = 0
        self._end_id = 0
        self._refill: asyncio.Task[None] | None = None

    async def take(self) -> int:
        """A new producer id. Raises StorageFailed if the next block cannot be made durable."""
        while self._next_id == self._end_id:
            # Concurrent requests share the allocation of a block.
            if self._refill is None:
                self._refill = asyncio.get_running_loop().create_task(self._take_block())
            await asyncio.shield(self._refill)
        producer_id = self._next_id
        self._next_id += 1
        return producer_id

    async def _take_block(self) -> None:
        try:
            first_id = await self._broker.metadata.change(self._decide)
        finally:
            self._refill = None
        self._next_id, self._end_id = first_id, first_id + BLOCK_SIZE

    def _decide(self, image: MetadataImage) -> ControllerResult[int]:
        first_id = image.next_producer_id
        record = ProducerIdsRecord(broker_id=self._broker.node_id, next_producer_id=first_id + BLOCK_SIZE)
        return ControllerResult([record], first_id)
