"""Producer ids: allocated to brokers in blocks by the active controller."""

import asyncio
from typing import TYPE_CHECKING

from runnel.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from runnel.model.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

PREFETCH_SHARE = 10
"""The next block is requested when a tenth of the current one is left, as in Kafka: few wait for it."""

REQUEST_TIMEOUT_MS = 5_000
"""How long a producer waits for the controller; then it gets a retriable error."""


class ProducerIds:
    """The blocks of ids that only this broker, since its last start, may allocate from."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._ids = range(0)
        self._next_ids = range(0)
        """The block after the current one, if it was requested ahead."""
        self._block_size = 0
        self._refill: asyncio.Task[None] | None = None

    async def take(self) -> int:
        """A new producer id. Raises COORDINATOR_LOAD_IN_PROGRESS while the controller gives no block."""
        while not self._ids:
            if self._next_ids:
                self._ids, self._next_ids = self._next_ids, range(0)
            else:
                await asyncio.shield(self._request_block())
        producer_id, self._ids = self._ids[0], self._ids[1:]
        if not self._next_ids and len(self._ids) * PREFETCH_SHARE < self._block_size:
            self._request_block()
        return producer_id

    def _request_block(self) -> "asyncio.Task[None]":
        # Concurrent requests share the allocation of a block.
        if self._refill is None:
            self._refill = asyncio.get_running_loop().create_task(self._take_block())
            # A failure of a request ahead is repeated, and reported, when an id is needed.
            self._refill.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._refill

    async def _take_block(self) -> None:
        broker = self._broker
        request = AllocateProducerIdsRequest(broker.node_id, broker.epoch)
        try:
            response: AllocateProducerIdsResponse = await broker.controller.request(
                request, timeout_ms=REQUEST_TIMEOUT_MS
            )
            error = ErrorCode.from_code(response.error_code)
            if error is not ErrorCode.NONE or response.producer_id_len <= 0:
                raise ApiError(error, f"the controller returned {error.name}")
        except ApiError as failure:
            # As in Kafka: producers retry.
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            raise ApiError(error, f"no block of producer ids: {failure}") from failure
        finally:
            self._refill = None
        self._block_size = response.producer_id_len
        self._next_ids = range(
            response.producer_id_start, response.producer_id_start + response.producer_id_len
        )
