"""Validation of batches for topics that demand schemas: their records have ids that are registered.

    small, ids known ───────────────────────────────▶ accepted at once
    else: copied ──▶ ids found in a thread ──▶ known ──▶ accepted
                                          └──▶ _schemas is read to its end ──▶ known ──▶ accepted
                                                                          ├──▶ unknown ──▶ INVALID_RECORD
                                                                          └──▶ not read in time: retriable

Records without an id are refused at once.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from runnel.batch.errors import BatchInflatesTooFar
from runnel.batch.header import HEADER_BYTES, read_header
from runnel.broker.runtime.blocking import Job
from runnel.broker.runtime.followed_schemas import FollowedSchemas
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.log.record_schemas import Ids, refusal, schema_ids, strategy_of
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.limits import (
    VALIDATED_HELD_BYTES_MAX,
    VALIDATED_INLINE_BYTES_MAX,
    VALIDATED_INLINE_RECORDS_MAX,
)
from runnel.model.log_config import LogConfig
from runnel.registry.subject_ids import subject_under

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

T = TypeVar("T")

WAIT_MS = 5_000
"""How long a request waits for ids at most, which is less than producers wait for a response."""

# Producers repeat it without a metadata update, which would not help.
UNAVAILABLE = ErrorCode.NOT_ENOUGH_REPLICAS


class SchemaValidation:
    """Validates the batches of this broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._schemas = FollowedSchemas(broker)
        self._inspecting = asyncio.Lock()
        """One batch is decompressed at a time."""
        self._held_bytes = 0
        """The size of batches that are not validated yet."""

    @property
    def deadline_ms(self) -> int:
        """Until when a request that is received now waits."""
        return self._broker.clock.monotonic_ms() + WAIT_MS

    def is_valid(self, records: memoryview, partition: ReplicatedLog) -> bool:
        """Whether a batch is valid, as far as that can be decided at once. Raises ApiError."""
        config = partition.log.config
        size = len(records)
        if size > VALIDATED_INLINE_BYTES_MAX:
            return False
        if size >= HEADER_BYTES and read_header(records).record_count > VALIDATED_INLINE_RECORDS_MAX:
            return False
        try:
            ids = schema_ids(records, config, VALIDATED_INLINE_BYTES_MAX)
        except BatchInflatesTooFar:
            return False
        return self._schemas.may_accept() and not self._unknown(ids, config, partition.name.topic)

    def hold(self, records: memoryview) -> memoryview:
        """A copy of a batch, to be validated. Raises ApiError if too many wait."""
        if self._held_bytes and self._held_bytes + len(records) > VALIDATED_HELD_BYTES_MAX:
            raise ApiError(UNAVAILABLE, "too many batches wait until their schemas are validated")
        self._held_bytes += len(records)
        return memoryview(bytearray(records))

    def release(self, records: memoryview) -> None:
        """A batch that was held is validated."""
        self._held_bytes -= len(records)

    async def validate(self, records: memoryview, partition: ReplicatedLog, deadline_ms: int) -> None:
        """Raises ApiError: INVALID_RECORD, or a retriable one if that is not known by the deadline."""
        config, topic = partition.log.config, partition.name.topic
        ids = await self._in_thread(partial(schema_ids, records, config))
        schemas = self._schemas
        is_current = False
        if not schemas.may_accept():
            is_current = await schemas.catch_up(deadline_ms)
        unknown = self._unknown(ids, config, topic)
        if unknown and not is_current:
            is_current = await schemas.catch_up(deadline_ms)
            unknown = self._unknown(ids, config, topic)
        if not unknown:
            return
        if not is_current:
            why = schemas.failure or "its records are being read"
            raise ApiError(UNAVAILABLE, f"the schemas of {topic} cannot be validated: _schemas: {why}")
        subjects = {part: subject_under(strategy_of(config, part), topic, part) for part in ids}
        named = {part: unknown.get(part, set()) for part in ids}
        raise await self._in_thread(partial(refusal, records, config, named, subjects))

    def _unknown(self, ids: Ids, config: LogConfig, topic: str) -> dict[str, set[int]]:
        """The ids that are not registered, by part."""
        unknown: dict[str, set[int]] = {}
        for part, used in ids.items():
            known = self._schemas.ids.under(strategy_of(config, part), topic, part)
            missing = {schema_id for schema_id in used if schema_id not in known}
            if missing:
                unknown[part] = missing
        return unknown

    async def _in_thread(self, work: Callable[[], T]) -> T:
        async with self._inspecting:
            return await self._broker.disk.run_blocking(Job(work))
