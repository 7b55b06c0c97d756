"""Verification of batches that start a transaction: order, retries and errors."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from runnel.broker.runtime.promise import Promise
from runnel.messages.api_versions import ApiVersionsRequest
from runnel.messages.delete_topics import DeleteTopicsRequest
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import TopicPartition
from tests.broker.requests import batch, fetch_from, only, produce_to, values
from tests.broker.world import BrokerWorld, Client

NAME = TopicPartition("t", 0)
WHO = (5, 0)


class Coordinator:
    """A coordinator scripted by the test; without a prepared result, verification stays pending."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.open: list[Promise[Any]] = []
        self.asked: list[tuple[str, int, int, bool]] = []

    def verify(
        self, name: str, producer_id: int, epoch: int, partitions: Collection[TopicPartition], adds: bool
    ) -> Any:
        self.asked.append((name, producer_id, epoch, adds))
        if not self.results:
            self.open.append(Promise())
            return self.open[-1]
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return dict.fromkeys(partitions, result)

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> None:
        self.open.pop(0).resolve({NAME: error})


Scenario = Callable[[BrokerWorld, Client, Coordinator], Awaitable[None]]


def play(folder: Path, scenario: Scenario, **settings: str) -> None:
    async def run() -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        async with BrokerWorld(folder, named) as world:
            await world.create("t")
            coordinator = Coordinator()
            real = world.broker.transactions
            world.broker.transactions = coordinator  # type: ignore[assignment]
            try:
                await scenario(world, await world.connect(), coordinator)
            finally:
                world.broker.transactions = real

    asyncio.run(run())


def first_batch(value: bytes = b"v", sequence: int = 0, who: tuple[int, int] = WHO) -> Any:
    records = batch(
        value, producer_id=who[0], producer_epoch=who[1], base_sequence=sequence, transactional=True
    )
    return produce_to("t", (0, records), transactional_id="x")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


def end_offset(world: BrokerWorld) -> int:
    return world.broker.partition("t", 0).log.end_offset


def test_connection_is_held_and_records_are_copied(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
        client.send(first_batch(b"a" * 1000), 12)
        client.send(first_batch(b"b", sequence=1), 12)
        client.send(ApiVersionsRequest("test", "1"), 3)
        await until(lambda: bool(coordinator.open))
        other = await world.connect()
        for _ in range(5):
            # The receive buffer is reused.
            await other.ask(produce_to("t", (0, batch(b"x" * 1000))), 9)
        assert end_offset(world) == 5 and len(coordinator.asked) == 1
        coordinator.answer()
        assert only(await client.receive()).base_offset == 5
        assert only(await client.receive()).base_offset == 6
        assert (await client.receive()).error_code == 0
        assert coordinator.asked == [("x", *WHO, True)]
        seen = only(await other.ask(fetch_from("t", (0, 5)), 11))
        assert values(seen.records) == [b"a" * 1000, b"b"]

    play(tmp_path, scenario)


@pytest.mark.parametrize("is_commit", [True, False])
def test_verification_of_a_completed_transaction_does_not_start_one(tmp_path: Path, is_commit: bool) -> None:
    async def scenario(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
        client.send(first_batch(b"late"), 11)
        await until(lambda: len(coordinator.open) == 1)
        partition = world.broker.partition("t", 0)
        partition.append_marker(*WHO, 0, is_commit, 0, 1)
        # The producer's next transaction is verified before the first result arrives.
        other = await world.connect()
        other.send(first_batch(b"next"), 11)
        await until(lambda: len(coordinator.open) == 2)
        coordinator.answer()
        assert only(await client.receive()).error_code == ErrorCode.INVALID_TXN_STATE.code
        assert end_offset(world) == 1 and partition.last_stable_offset == 1
        coordinator.answer()
        assert only(await other.receive()).base_offset == 1
        assert partition.last_stable_offset == 1

    play(tmp_path, scenario)


@pytest.mark.parametrize("version", [11, 12])
def test_batches_keep_their_order(tmp_path: Path, version: int) -> None:
    async def scenario(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
        other = await world.connect()
        client.send(first_batch(b"0"), version)
        await until(lambda: len(coordinator.open) == 1)
        other.send(first_batch(b"1", sequence=1), version)
        await until(lambda: len(coordinator.open) == 2)
        coordinator.open.reverse()
        coordinator.answer()
        assert only(await other.receive()).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.code
        coordinator.answer()
        assert only(await client.receive()).base_offset == 0
        # The transaction is open now: no further verification.
        assert only(await other.ask(first_batch(b"1", sequence=1), version)).base_offset == 1
        assert len(coordinator.asked) == 2

    play(tmp_path, scenario)


@pytest.mark.parametrize(("version", "taken"), [(11, True), (12, False)])
def test_unknown_producer(tmp_path: Path, version: int, taken: bool) -> None:
    async def scenario(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
        coordinator.results = [ErrorCode.NONE]
        reply = only(await client.ask(first_batch(sequence=7), version))
        assert reply.error_code == (0 if taken else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.code)

    play(tmp_path, scenario)


_RETRIED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
CLIENT_ERRORS = [
    *((version, error, ErrorCode.NOT_ENOUGH_REPLICAS) for version in (10, 11, 12) for error in _RETRIED),
    (10, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
    (11, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
    (10, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
    (11, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
    (12, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
    (10, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
    (12, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
    (12, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
]


def test_errors_by_version(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
        for version, result, expected in CLIENT_ERRORS:
            coordinator.results = [result]
            reply = only(await client.ask(first_batch(), version))
            assert reply.error_code == expected.code, (version, result)
        for failure, expected in (
            (ApiError(ErrorCode.NOT_COORDINATOR, "it moved"), ErrorCode.NOT_ENOUGH_REPLICAS),
            (RuntimeError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
        ):
            coordinator.results = [failure]
            assert only(await client.ask(first_batch(), 12)).error_code == expected.code
        assert end_offset(world) == 0

    play(tmp_path, scenario)


def test_retry_while_the_previous_transaction_completes(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
        busy = ErrorCode.CONCURRENT_TRANSACTIONS
        coordinator.results = [busy, busy, ErrorCode.NONE]
        assert only(await client.ask(first_batch(), 12)).base_offset == 0
        assert len(coordinator.asked) == 3
        coordinator.results = [busy] * 100
        reply = only(await client.ask(first_batch(who=(6, 0)), 12))
        assert reply.error_code == busy.code and 1 < len(coordinator.asked) < 20

    play(tmp_path, scenario)


def test_the_marker_of_the_previous_transaction_arrives_during_verification(tmp_path: Path) -> None:
    """EndTxn is answered before the markers are written, so the next transaction may be here before them."""

    async def scenario(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
        partition = world.broker.partition("t", 0)
        # The first answer is that the previous transaction completes, and the marker comes before the second.
        client.send(first_batch(b"next", who=(5, 1)), 12)
        await until(lambda: len(coordinator.open) == 1)
        coordinator.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        partition.append_marker(5, 1, 0, True, 0, 2)
        await until(lambda: len(coordinator.open) == 1)
        coordinator.answer()
        assert only(await client.receive()).base_offset == 1
        # The marker comes between the question and its answer.
        partition.append_marker(5, 2, 0, True, 0, 2)
        client.send(first_batch(b"after", who=(5, 3)), 12)
        await until(lambda: len(coordinator.open) == 1)
        partition.append_marker(5, 3, 0, True, 0, 2)
        coordinator.answer()
        await until(lambda: len(coordinator.open) == 1)
        coordinator.answer()
        assert only(await client.receive()).base_offset == 4
        assert [epoch for _, _, epoch, _ in coordinator.asked] == [1, 1, 3, 3]

    play(tmp_path, scenario)


def test_verification_can_be_disabled_for_older_producers(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
        assert only(await client.ask(first_batch(), 11)).base_offset == 0
        coordinator.results = [ErrorCode.INVALID_TXN_STATE]
        reply = only(await client.ask(first_batch(who=(6, 0)), 12))
        assert reply.error_code == ErrorCode.INVALID_TXN_STATE.code

    play(tmp_path, scenario, transaction_partition_verification_enable="false")


def test_invalid_batches_are_rejected_without_verification(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
        nameless = first_batch()
        nameless.transactional_id = None
        reply = only(await client.ask(nameless, 12))
        assert reply.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.code
        silent = first_batch()
        silent.acks = 0
        silent_client = await world.connect()
        silent_client.send(silent, 12)
        assert await silent_client.is_closed()
        assert coordinator.asked == [] and end_offset(world) == 0

    play(tmp_path, scenario)


def test_topic_deleted_during_verification(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
        client.send(first_batch(), 12)
        await until(lambda: bool(coordinator.open))
        other = await world.connect()
        await other.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        await world.create("t")
        coordinator.answer()
        assert only(await client.receive()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER.code
        assert end_offset(world) == 0

    play(tmp_path, scenario)
