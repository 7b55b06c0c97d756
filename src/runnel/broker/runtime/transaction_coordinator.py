"""The transaction coordinator: its shards, and the requests to them."""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from runnel.broker.runtime.promise import MaybePromise, settled
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.broker.runtime.shard_driver import Refuse, ShardDriver, T
from runnel.broker.runtime.shards import Shards
from runnel.broker.runtime.txn_markers import Marker, MarkerSender
from runnel.broker.runtime.txn_verification import Errors, Verifications
from runnel.controller.features import TRANSACTION_VERSION
from runnel.controller.values import TRANSACTION_STATE
from runnel.coordinator.contract import CoordinatorResult, ShardEffect, client_error
from runnel.coordinator.txn.expiry import AllocateProducerId
from runnel.coordinator.txn.markers import WriteMarkers
from runnel.coordinator.txn.settings import TRANSACTION_V2, TransactionSettings
from runnel.coordinator.txn.shard import TransactionShard
from runnel.coordinator.txn.store import ProducerIdRequired
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import NO_LEADER, TopicPartition
from runnel.ports.clock import TimerHandle

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

log = logging.getLogger("runnel.broker")

TransactionDriver = ShardDriver[TransactionShard]

_COMMIT_TIMEOUT_MS = 30_000
"""How long a response waits for the log: Kafka's timeout of requests between brokers."""

_UNCOMPRESSED = 0
"""Kafka's settings of this topic; its records are small and short-lived."""


class TransactionCoordinator(Shards[TransactionShard]):
    """All transaction shards of this node."""

    topic = TRANSACTION_STATE

    def __init__(self, broker: "Broker") -> None:
        super().__init__(broker)
        settings = broker.settings
        self._settings = TransactionSettings(
            timeout_max_ms=settings["transaction.max.timeout.ms"],
            expiration_ms=settings["transactional.id.expiration.ms"],
            abort_interval_ms=settings["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
            expire_interval_ms=settings["transaction.remove.expired.transaction.cleanup.interval.ms"],
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._next_check: TimerHandle | None = None
        self.markers = MarkerSender(broker)
        self._verifications = Verifications(broker, self.leader_of)
        self.features_changed()

    def start(self) -> None:
        """Start to load every partition with records, and periodic maintenance."""
        super().start()
        self._check_shards()

    def stop(self) -> None:
        """Fail pending requests, reject new ones and cancel timers."""
        super().stop()
        self.markers.stop()
        self._verifications.stop()
        if self._next_check is not None:
            self._next_check.cancel()
        for task in self._tasks:
            task.cancel()

    def _check_shards(self) -> None:
        """Reload shards that lost records, also without requests: they may have transactions to complete."""
        self._next_check = self._broker.timers.call_later(
            self._settings.abort_interval_ms, self._check_shards
        )
        for index in range(self.partition_count):
            self.role_changed(TopicPartition(self.topic, index))

    def features_changed(self) -> None:
        """The finalized level of `transaction.version` may have changed."""
        features = self._broker.metadata.image.features
        self._settings.transaction_version = features.get(TRANSACTION_VERSION, 0)

    def topics_deleted(self, names: Collection[str]) -> None:
        """These topics were deleted, possibly including __transaction_state."""
        self._unload_stale()

    def decide(
        self,
        transactional_id: str,
        decide: Callable[[TransactionDriver], CoordinatorResult[T]],
        refuse: Refuse[T],
    ) -> MaybePromise[T]:
        """Run an operation that may need a new producer id; returns the response or a promise of it."""
        try:
            return self.write(transactional_id, decide, refuse)
        except ProducerIdRequired:
            return self._broker.run(self._decide_with_producer_id(transactional_id, decide, refuse))

    async def _decide_with_producer_id(
        self,
        transactional_id: str,
        decide: Callable[[TransactionDriver], CoordinatorResult[T]],
        refuse: Refuse[T],
    ) -> T:
        while True:
            try:
                producer_id = await self._broker.producer_ids.take()
                # The shard may have been reloaded.
                self.driver_of(transactional_id).shard.add_producer_id(producer_id)
                return await settled(self.write(transactional_id, decide, refuse))
            except ProducerIdRequired:
                # Allocated concurrently by another request.
                continue
            except ApiError as error:
                return refuse(client_error(error.error))

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        adds: bool,
    ) -> MaybePromise[Errors]:
        """Verify that partitions are part of a transaction; returns an error code for each.

        With `adds`, they become part of it (KIP-890); otherwise they must be already. The
        coordinator may be another broker.
        """
        leader = self.leader_of(transactional_id)
        if leader not in (NO_LEADER, self._broker.node_id) and transactional_id:
            return self._verifications.verify(
                leader, transactional_id, producer_id, producer_epoch, partitions, adds
            )
        if adds:
            return self.add(transactional_id, producer_id, producer_epoch, partitions, TRANSACTION_V2)

        def decide(driver: TransactionDriver) -> CoordinatorResult[Errors]:
            return CoordinatorResult(
                driver.shard.verify_partitions(transactional_id, producer_id, producer_epoch, partitions)
            )

        return self._write_for_partitions(transactional_id, partitions, decide)

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        client_version: int = 0,
    ) -> MaybePromise[Errors]:
        """Add partitions to a transaction; returns an error code for each."""

        def decide(driver: TransactionDriver) -> CoordinatorResult[Errors]:
            return driver.shard.add_partitions(
                transactional_id, producer_id, producer_epoch, partitions, client_version, driver.now()
            )

        return self._write_for_partitions(transactional_id, partitions, decide)

    def _write_for_partitions(
        self,
        transactional_id: str,
        partitions: Collection[TopicPartition],
        decide: Callable[[TransactionDriver], CoordinatorResult[Errors]],
    ) -> MaybePromise[Errors]:
        def refuse(error: ErrorCode) -> Errors:
            return dict.fromkeys(partitions, error)

        if not transactional_id:
            return refuse(ErrorCode.INVALID_REQUEST)
        return self.write(transactional_id, decide, refuse)

    def _make(self, partition: ReplicatedLog) -> TransactionDriver:
        driver: TransactionDriver = ShardDriver(
            TransactionShard(self._settings),
            partition,
            self._broker.clock,
            self._broker.timers,
            _COMMIT_TIMEOUT_MS,
            _UNCOMPRESSED,
            lambda effect: self._carry_out(driver, effect),
        )
        return driver

    def _carry_out(self, driver: TransactionDriver, effect: ShardEffect) -> None:
        match effect:
            case WriteMarkers():
                self._write_markers(driver, effect)
            case AllocateProducerId():
                task = asyncio.get_running_loop().create_task(self._allocate_producer_id(driver))
                # The loop itself keeps only weak references to tasks.
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _write_markers(self, driver: TransactionDriver, effect: WriteMarkers) -> None:
        ended = effect.ended
        marker = Marker(
            ended.producer_id,
            ended.epoch,
            driver.epoch,
            effect.is_commit,
            effect.transaction_version,
        )

        def on_marked(partition: TopicPartition, error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                log.info("%s: completing %s returned %s", partition, ended.transactional_id, error.name)
            if driver.is_loaded:
                driver.run(driver.shard.marked(ended, partition, error, driver.now()))

        self.markers.send(marker, effect.partitions, lambda: driver.is_loaded, on_marked)

    async def _allocate_producer_id(self, driver: TransactionDriver) -> None:
        try:
            producer_id = await self._broker.producer_ids.take()
        except ApiError as error:
            log.warning("no producer id for %s: %s", driver.partition.name, error)
        else:
            driver.shard.add_producer_id(producer_id)


def error_for_version(error: ErrorCode, api_version: int, fenced_from: int) -> ErrorCode:
    """Map an error for older versions: PRODUCER_FENCED was added after the APIs that return it."""
    if error is ErrorCode.PRODUCER_FENCED and api_version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
