"""Metrics of groups and transactions that this node coordinates, and of requests that wait."""

from collections import Counter
from collections.abc import Iterator

from runnel.broker.metrics.series import ROWS_PER_STEP
from runnel.broker.runtime.broker import Broker
from runnel.coordinator.txn.transaction import TransactionState
from runnel.observe.metrics import Family, one


class CoordinatorMetrics:
    """Groups, transactions, and what waits."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __call__(self) -> Iterator[Family | None]:
        yield from self._groups()
        yield from self._transactions()
        yield from self._queues()

    def _groups(self) -> Iterator[Family | None]:
        counts: Counter[tuple[str, str]] = Counter()
        loading = 0
        for driver in self._broker.groups.drivers():
            if not driver.is_loaded:
                loading += 1
                continue
            for number, group in enumerate(list(driver.shard.groups.values())):
                counts["classic", group.state.value] += 1
                if number % ROWS_PER_STEP == 0:
                    yield None
            for number, consumers in enumerate(list(driver.shard.consumers.by_id.values())):
                counts["consumer", consumers.state.value] += 1
                if number % ROWS_PER_STEP == 0:
                    yield None
        events = self._broker.events
        yield Family(
            "runnel_groups",
            "gauge",
            "Groups that this node coordinates, by protocol and state.",
            [
                ((("protocol", protocol), ("state", state)), count)
                for (protocol, state), count in sorted(counts.items())
            ],
        )
        yield Family(
            "runnel_group_rebalances_total",
            "counter",
            "Rebalances of groups, by protocol: assignments that were stored.",
            [((("protocol", protocol),), count) for protocol, count in events.rebalances.items()],
        )
        yield one(
            "runnel_commits_total",
            "counter",
            "Offsets that groups committed, by partition.",
            events.commits,
        )
        yield one(
            "runnel_group_shards_loading",
            "gauge",
            "Partitions of __consumer_offsets led here that are being loaded.",
            loading,
        )

    def _transactions(self) -> Iterator[Family | None]:
        counts: Counter[str] = Counter()
        now_ms, oldest_ms, loading = self._broker.clock.now_ms(), 0, 0
        for driver in self._broker.transactions.drivers():
            if not driver.is_loaded:
                loading += 1
                continue
            for number, transaction in enumerate(list(driver.shard.store.transactions.values())):
                counts[transaction.state.display_name] += 1
                if transaction.state is TransactionState.ONGOING:
                    oldest_ms = max(oldest_ms, now_ms - transaction.started_ms)
                if number % ROWS_PER_STEP == 0:
                    yield None
        yield Family(
            "runnel_transactions",
            "gauge",
            "Transactional ids that this node coordinates, by the state of their transaction.",
            [((("state", state),), count) for state, count in sorted(counts.items())],
        )
        yield one(
            "runnel_transaction_oldest_seconds",
            "gauge",
            "Age of the oldest transaction that is ongoing here; 0 without one.",
            oldest_ms / 1000,
        )
        yield one(
            "runnel_transaction_shards_loading",
            "gauge",
            "Partitions of __transaction_state led here that are being loaded.",
            loading,
        )

    def _queues(self) -> Iterator[Family]:
        controller = self._broker.metadata.controller
        yield one(
            "runnel_waiting_fetches",
            "gauge",
            "Fetches that wait for records.",
            len(self._broker.waiting.polls),
        )
        yield one(
            "runnel_controller_pending_changes",
            "gauge",
            "Changes of the metadata that are written and not committed, on the active controller.",
            0 if controller is None else controller.pending_count,
        )
