"""Brokers whose disk was replaced: their replicas are assigned to the new directory once that is safe."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from runnel.controller.partition_change import Election, PartitionChange, may_lead_in
from runnel.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import NO_LEADER
from runnel.schemas.metadata import FeatureLevelRecord, PartitionChangeRecord
from tests.broker.replicas import DIRECTORY, Replicas, until
from tests.broker.test_replication import log_bytes, produced

NEW = bytes(range(16, 32))

Scenario = Callable[[Replicas], Awaitable[None]]


def play(tmp_path: Path, scenario: Scenario, count: int = 2) -> None:
    async def run() -> None:
        async with Replicas(tmp_path, count) as replicas:
            await replicas.change(
                FeatureLevelRecord("metadata.version", 30),
                FeatureLevelRecord("eligible.leader.replicas.version", 1),
            )
            await replicas.create("t", replicas=tuple(range(1, count + 1)))
            client = await replicas.connect(1)
            for number in range(5):
                assert (await produced(client, b"%d" % number)).error_code == 0
            await scenario(replicas)

    asyncio.run(run())


async def replace_disk(replicas: Replicas, tmp_path: Path, node: int, **left: Any) -> None:
    """The broker returns with an empty disk; `left` is what its registration makes of the partition."""
    await replicas.stop(node)
    shutil.rmtree(tmp_path / str(node))
    topic = replicas.image.topics["t"]
    await replicas.change(PartitionChangeRecord(0, topic.id, **left))
    replicas._known.pop(node)
    replicas.directories[node] = NEW
    await replicas.start(node)


def directory(replicas: Replicas, node: int) -> bytes:
    state = replicas.state()
    return state.directories[state.replicas.index(node)]


def may_lead(replicas: Replicas, node: int) -> bool:
    return may_lead_in(replicas.image)(node, directory(replicas, node))


def test_a_follower_with_a_new_disk_can_be_elected_again(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replace_disk(replicas, tmp_path, 2, isr=[1])
        await until(lambda: directory(replicas, 2) == NEW and set(replicas.state().isr) == {1, 2})
        assert directory(replicas, 1) == DIRECTORY
        assert may_lead(replicas, 2)
        await replicas.elect("t", 2)
        assert log_bytes(replicas, 2) == log_bytes(replicas, 1)

    play(tmp_path, scenario)


@pytest.mark.parametrize("left", [{"isr": [2]}, {"isr": [], "last_known_elr": [2]}])
def test_the_last_replica_with_a_new_disk_is_not_elected_by_itself(tmp_path: Path, left: Any) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.stop(1)
        await replicas.fence(1)
        await replace_disk(replicas, tmp_path, 2, leader=NO_LEADER, **left)
        await until(lambda: directory(replicas, 2) == NEW)
        state = replicas.state()
        assert (state.leader, state.isr, state.eligible, state.last_known_eligible) == (NO_LEADER, (), (), ())
        # The operator may decide to continue without the records.
        change = PartitionChange(replicas.image, state, 1)
        change.election = Election.UNCLEAN
        record = change.build(replicas.image.topics["t"].id, 0)
        assert record is not None and record.leader == 2
        await replicas.change(record)
        assert (await produced(await replicas.connect(2), b"next")).base_offset == 0

    play(tmp_path, scenario)


def test_a_replica_that_was_fetched_again_is_elected_although_its_leader_was_lost_first(
    tmp_path: Path,
) -> None:
    async def scenario(replicas: Replicas) -> None:
        request, is_refused = replicas.request, True

        async def refuse(asked: Any) -> Any:
            if isinstance(asked, AssignReplicasToDirsRequest) and is_refused:
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "no controller answers")
            return await request(asked)

        replicas.request = refuse  # type: ignore[method-assign, assignment]
        await replace_disk(replicas, tmp_path, 2, isr=[1])
        await until(lambda: set(replicas.state().isr) == {1, 2})
        assert directory(replicas, 2) == DIRECTORY
        await replicas.stop(1)
        # The controller did not find a leader: the registered directory is another one.
        await replicas.elect("t", NO_LEADER, isr=(2,))
        is_refused = False
        await replicas.fence(1)
        await until(lambda: replicas.state().leader == 2)
        assert replicas.state().isr == (2,)
        await until(lambda: replicas.partition(2).is_leader)
        assert (await produced(await replicas.connect(2), b"next")).base_offset == 5

    play(tmp_path, scenario)
