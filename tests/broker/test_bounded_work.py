"""Requests that name many partitions cost work in proportion to their size, not to its square."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.broker.apis import list_groups, offset_commit, txn_offset_commit
from runnel.broker.runtime.elements import has_many_elements
from runnel.broker.runtime.metadata_log import RECORDS_AT_ONCE
from runnel.broker.runtime.patterns import compiled
from runnel.controller.image import MetadataImage
from runnel.controller.placement import check_replicas
from runnel.controller.quotas import decide_alter_client_quotas
from runnel.controller.steps import Steps
from runnel.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from runnel.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from runnel.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from runnel.messages.txn_offset_commit import TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.limits import SLICE_ELEMENTS
from runnel.schemas.metadata import ClientQuotaRecord
from runnel.schemas.metadata import EntityData as RecordedEntity
from tests.broker.world import BrokerWorld

COUNT = 2_000


class CountedInt(int):
    """A number that counts how often it is compared for equality."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountedInt.comparisons += 1
        return int(self) == other

    def __hash__(self) -> int:
        return int(self)


@pytest.fixture(autouse=True)
def _reset() -> None:
    CountedInt.comparisons = 0


def missing_and_known() -> list[CountedInt]:
    """Partition 0 of the topic, between many that do not exist."""
    indexes = [CountedInt(index) for index in range(1, COUNT)]
    indexes.insert(COUNT // 2, CountedInt(0))
    return indexes


def test_offset_commit_to_partitions_that_do_not_exist(tell):
    async def scenario(world: BrokerWorld) -> None:
        await world.create("events")
        parts = [OffsetCommitRequestPartition(index, 1) for index in missing_and_known()]
        topic = OffsetCommitRequestTopic("events", partitions=parts)
        refused = offset_commit._split(topic, world.broker.metadata.image, 9)
        assert [part.partition_index for part in topic.partitions] == [0]
        assert [answer.partition_index for answer in refused] == list(range(1, COUNT))
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
        assert {answer.error_code for answer in refused} == {unknown}

    tell(scenario)
    # The assertion above compares each number once.
    assert CountedInt.comparisons <= 2 * COUNT


def test_txn_offset_commit_to_partitions_that_do_not_exist(tell):
    async def scenario(world: BrokerWorld) -> None:
        await world.create("events")
        parts = [TxnOffsetCommitRequestPartition(index, 1) for index in missing_and_known()]
        topic = TxnOffsetCommitRequestTopic("events", parts)
        refused = txn_offset_commit._split(topic, world.broker.metadata.image)
        assert [part.partition_index for part in topic.partitions] == [0]
        assert [answer.partition_index for answer in refused] == list(range(1, COUNT))

    tell(scenario)
    assert CountedInt.comparisons <= 2 * COUNT


def test_a_manual_assignment_that_repeats_a_broker():
    replicas = [CountedInt(node_id) for node_id in (*range(COUNT), COUNT - 1)]
    with pytest.raises(ApiError, match=f"the broker {COUNT - 1} more than once"):
        check_replicas(MetadataImage(), replicas)
    assert CountedInt.comparisons <= 4 * COUNT


def test_a_quota_of_an_entity_with_many_parts():
    entity = [EntityData("user", "u") for _ in range(COUNT)]
    entry = EntryData(entity, [OpData("producer_byte_rate", 1.0)])
    answer = decide_alter_client_quotas(MetadataImage(), AlterClientQuotasRequest([entry]))
    assert answer.response.entries[0].error_code == ErrorCode.INVALID_REQUEST.code
    assert answer.records == []


def test_the_last_value_of_a_quota_counts():
    """As in Kafka; a request that repeats a key does not write as many records."""
    ops = [OpData("producer_byte_rate", float(value)) for value in range(1, COUNT)]
    entry = EntryData([EntityData("user", "u")], ops)
    (record,) = decide_alter_client_quotas(MetadataImage(), AlterClientQuotasRequest([entry])).records
    assert isinstance(record, ClientQuotaRecord)
    assert (record.key, record.value) == ("producer_byte_rate", COUNT - 1)


def test_filters_of_groups_are_compared_by_what_groups_can_have():
    long = " stable" * COUNT
    assert list_groups._names([long, " Stable ", "EMPTY", long + "x"]) == {"", "stable", "empty"}


def test_patterns_take_bounded_memory():
    """A pattern of a few hundred bytes may compile to megabytes, and many of them are kept."""
    compiled("|".join(f"topic-{number}" for number in range(2_000))).fullmatch("topic-7")
    with pytest.raises(ValueError, match="too large"):
        compiled("|".join(f"{number}[a-zé-ÿĀ-⿿]{{100}}" for number in range(80)))


@given(st.lists(st.lists(st.integers(0, 300), max_size=4), max_size=4))
def test_elements_are_counted_at_every_level(sizes: list[list[int]]) -> None:
    groups = [
        OffsetFetchRequestGroup(
            topics=[OffsetFetchRequestTopics(partition_indexes=list(range(size))) for size in topics]
        )
        for topics in sizes
    ]
    count = len(sizes) + sum(len(topics) + sum(topics) for topics in sizes)
    assert has_many_elements(OffsetFetchRequest(groups=groups)) == (count > SLICE_ELEMENTS)


def test_a_controller_serves_others_while_its_own_decisions_take_effect(tell):
    """Steps of one decision may be committed together; they are applied one after the other."""

    async def scenario(world: BrokerWorld) -> None:
        metadata = world.broker.metadata
        seen: list[int] = []

        def decide(image: Any) -> Steps[None]:
            for step in range(10):
                quota = ClientQuotaRecord([RecordedEntity("user", None)], "producer_byte_rate", float(step))
                yield [quota] * RECORDS_AT_ONCE

        async def watch() -> None:
            while True:
                seen.append(metadata.image.version)
                await asyncio.sleep(0)

        before = metadata.image.version
        watching = asyncio.create_task(watch())
        await metadata.change_in_steps(decide)
        watching.cancel()
        assert metadata.image.version == before + 10 * RECORDS_AT_ONCE
        jumps = [after - before for before, after in pairwise(seen)]
        assert max(jumps) <= 2 * RECORDS_AT_ONCE

    tell(scenario)
