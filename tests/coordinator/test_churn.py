"""Invariants of classic groups under membership changes, failed appends and failovers.

Each seed is one history; a failure reports its seed.
"""

from random import Random

import pytest

from runnel.coordinator.group.group import GroupState
from runnel.coordinator.group.settings import GroupSettings
from runnel.coordinator.group.shard import GROUPS_PER_EXPIRY
from runnel.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from runnel.model.errors import ErrorCode
from runnel.schemas.coordinator import CoordinatorRecord
from runnel.schemas.group import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from tests.coordinator.consumer import GROUP, PARTITIONS, Consumer, work
from tests.coordinator.world import World

STEPS = 400
CONSUMERS_MAX = 7


class Churn:
    """One history and its invariants."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        settings = GroupSettings(initial_rebalance_delay_ms=self.random.choice([0, 3000]))
        self.world = World(settings, on_record=self.written)
        self.consumers: list[Consumer] = []
        self.owners: dict[int, dict[int, str]] = {}
        """Generation → partition → assigned owner."""
        self.last_stored_generation = 0
        self.last_live_generation = 0
        self.committed: dict[int, int] = {}
        self.count = 0

    def written(self, record: CoordinatorRecord) -> None:
        if isinstance(record.key, GroupMetadataKey) and isinstance(record.value, GroupMetadataValue):
            assert record.value.generation >= self.last_stored_generation, "a stored generation decreased"
            self.last_stored_generation = record.value.generation
            shares = [work(bytes(member.assignment)) for member in record.value.members]
            assert sum(map(len, shares)) == len(set().union(*shares)), "a stored partition has two owners"
        elif isinstance(record.key, OffsetCommitKey) and isinstance(record.value, OffsetCommitValue):
            self.committed[record.key.partition] = record.value.offset

    def step(self) -> None:
        actions = [self.come, self.go, self.crash, self.restart_static, self.change, self.fail, self.move]
        weights = [4, 1, 1, 1, 1, 1, 0.5]
        if self.random.random() < 0.25:
            self.random.choices(actions, weights)[0]()
        for consumer in self.random.sample(self.consumers, len(self.consumers)):
            if self.random.random() < 0.7:
                consumer.step()
                self.commit(consumer)
        self.world.wait(self.random.choice([0, 10, 500, 3000]))
        self.check()

    def come(self) -> None:
        if len(self.consumers) < CONSUMERS_MAX:
            self.count += 1
            instance_id = f"i{self.count}" if self.random.random() < 0.3 else None
            self.consumers.append(
                Consumer(self.world, f"c{self.count}", instance_id, self.random.choice([0, 3, 5, 9]))
            )

    def go(self) -> None:
        if self.consumers:
            self.consumers.pop(self.random.randrange(len(self.consumers))).leave()

    def crash(self) -> None:
        if self.consumers:
            self.consumers.pop(self.random.randrange(len(self.consumers)))

    def restart_static(self) -> None:
        static = [index for index, consumer in enumerate(self.consumers) if consumer.instance_id]
        if static:
            self.restart(self.random.choice(static))

    def restart(self, index: int) -> None:
        old = self.consumers[index]
        self.consumers[index] = Consumer(self.world, old.name, old.instance_id, old.version, old.wishes)

    def change(self) -> None:
        if self.consumers:
            consumer = self.random.choice(self.consumers)
            consumer.wishes = self.random.choice(
                ["range:t", "range:t,sticky:t", "sticky:t,range:t", "range:t+u"]
            )
            if consumer.waiter is None:
                consumer.rejoin(ErrorCode.REBALANCE_IN_PROGRESS)

    def fail(self) -> None:
        refusals = [None, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS]
        self.world.log_refuses = self.random.choice(refusals)

    def move(self) -> None:
        self.world.reload()
        self.last_live_generation = 0

    def commit(self, consumer: Consumer) -> None:
        if consumer.is_stable and consumer.owned and self.random.random() < 0.3:
            partition = self.random.choice(sorted(consumer.owned))
            offset = self.committed.get(partition, 0) + self.random.randrange(5)
            before = dict(self.committed)
            if consumer.commit(partition, offset):
                assert self.committed[partition] == offset, "an acknowledged commit is not in the log"
            else:
                assert self.committed == before, "a failed commit is in the log"

    def check(self) -> None:
        for consumer in self.consumers:
            if consumer.is_stable:
                owners = self.owners.setdefault(consumer.generation, {})
                for partition in consumer.owned:
                    owner = owners.setdefault(partition, consumer.owner)
                    assert owner == consumer.owner, f"{partition} has two owners in {consumer.generation}"
        group = self.world.shard.groups.get(GROUP)
        if group is not None:
            assert group.generation >= self.last_live_generation, "the generation decreased"
            self.last_live_generation = group.generation
            marks = self.world.shard.offsets.of(GROUP).committed.get("t", {})
            known = {partition: mark.offset for partition, mark in marks.items()}
            assert known == self.committed, "an offset changed without a commit"
            assert group.joining.keys() <= group.members.keys()
            assert group.syncing.keys() <= group.members.keys()
            assert group.leader is None or group.leader in group.members or group.state is GroupState.EMPTY

    def settle(self) -> None:
        """Without further faults the group must become stable in bounded time."""
        self.world.log_refuses = None
        for _ in range(400):
            for index, consumer in enumerate(self.consumers):
                consumer.step()
                # As in Kafka, a new coordinator may know only the former id of a static member.
                if consumer.is_fenced:
                    self.restart(index)
            self.world.wait(1000)
            self.check()
        group = self.world.shard.groups.get(GROUP)
        assert all(consumer.is_stable for consumer in self.consumers), "a member is stuck"
        if self.consumers:
            assert group is not None
            assert set(group.members) == {consumer.member_id for consumer in self.consumers}
            assert set().union(*(consumer.owned for consumer in self.consumers)) == set(PARTITIONS)
        elif group is not None:
            assert group.state is GroupState.EMPTY


@pytest.mark.parametrize("seed", range(40))
def test_invariants_hold(seed: int) -> None:
    churn = Churn(seed)
    for _ in range(STEPS):
        churn.step()
    churn.settle()


def test_expiration_examines_all_groups_in_steps() -> None:
    retention_ms, interval_ms = 60_000, 10_000
    world = World(GroupSettings(offsets_retention_ms=retention_ms, offsets_check_interval_ms=interval_ms))
    for number in range(3 * GROUPS_PER_EXPIRY + 1):
        topic = OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 1)])
        request = OffsetCommitRequest(f"g{number}", topics=[topic])
        world.carry_out(world.shard.commit(request, 8, world.now()))
    world.wait(retention_ms - 1)
    assert len(world.shard.groups) == 3 * GROUPS_PER_EXPIRY + 1
    due_ms = world.queue[0][0]
    world.wait(due_ms - world.now_ms)
    assert world.shard.groups == {}
