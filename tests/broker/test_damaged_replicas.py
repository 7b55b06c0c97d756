"""Damaged replicas: found at start, by readers and by verification; never elected, and fetched again."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from runnel.broker.runtime import damaged_replicas
from runnel.controller.features import DIRECTORIES_LEVEL
from runnel.controller.values import LOST_DIRECTORY
from runnel.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import TopicPartition
from runnel.schemas.metadata import FeatureLevelRecord, PartitionChangeRecord
from tests.broker.replicas import DIRECTORY, Replicas, until
from tests.broker.requests import batch, fetch_from, only, produce_to, values
from tests.broker.test_replication import log_bytes, produced

Scenario = Callable[[Replicas], Awaitable[None]]


def play(tmp_path: Path, scenario: Scenario, count: int = 3, **settings: str) -> None:
    async def run() -> None:
        async with Replicas(tmp_path, count, broker_session_timeout_ms="60000", **settings) as replicas:
            await replicas.change(
                FeatureLevelRecord("metadata.version", 30),
                FeatureLevelRecord("eligible.leader.replicas.version", 1),
            )
            await scenario(replicas)

    asyncio.run(run())


def segment(tmp_path: Path, node: int) -> Path:
    return tmp_path / str(node) / "t-0" / "00000000000000000000.log"


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 4]))


async def fill(replicas: Replicas, node: int = 1, count: int = 20) -> None:
    client = await replicas.connect(node)
    for number in range(count):
        assert (await produced(client, b"%d" % number)).error_code == 0
    await until(lambda: {replicas.partition(node).high_watermark for node in replicas.worlds} == {count})


def is_whole(replicas: Replicas, nodes: tuple[int, ...] = (1, 2, 3)) -> bool:
    state = replicas.state()
    if set(state.isr) != set(nodes) or set(state.directories) != {DIRECTORY}:
        return False
    return len({log_bytes(replicas, node) for node in nodes}) == 1


def losses(replicas: Replicas) -> list[PartitionChangeRecord]:
    """Changes that assigned a replica to the lost directory, where it may have been for a moment only."""
    changes = [record for record in replicas.records if isinstance(record, PartitionChangeRecord)]
    return [change for change in changes if LOST_DIRECTORY in (change.directories or ())]


async def verify(replicas: Replicas, node: int) -> None:
    """As after an unclean stop."""
    broker = replicas.worlds[node].broker
    broker.disk.was_closed_cleanly = lambda partition: False  # type: ignore[method-assign]
    broker.verification.start()


def test_a_follower_that_is_verified_leaves_the_isr_and_is_fetched_again(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        await fill(replicas)
        sound = log_bytes(replicas, 1)
        damaged = replicas.partition(3)
        flip(segment(tmp_path, 3), len(sound) // 2)
        await verify(replicas, 3)
        await until(lambda: losses(replicas))
        assert losses(replicas)[0].isr == [1, 2], "it left the ISR with the change of its directory"
        await until(lambda: is_whole(replicas))
        assert replicas.partition(3) is not damaged
        assert log_bytes(replicas, 3) == sound
        assert replicas.state().leader_epoch == 0, "the leader was not disturbed"
        # The node that was damaged leads as any other.
        await replicas.elect("t", 3)
        client = await replicas.connect(3)
        assert (await produced(client, b"next")).base_offset == 20

    play(tmp_path, scenario)


def test_a_leader_that_is_verified_hands_over(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        await fill(replicas)
        flip(segment(tmp_path, 1), 100)
        await verify(replicas, 1)
        await until(lambda: replicas.state().leader != 1)
        assert replicas.state().leader == 2
        await until(lambda: is_whole(replicas))
        client = await replicas.connect(2)
        assert (await produced(client, b"next")).base_offset == 20
        assert len(values(only(await client.ask(fetch_from("t", (0, 0)), 12)).records)) == 21

    play(tmp_path, scenario)


def test_a_leader_whose_batch_a_follower_refuses_verifies_it_and_hands_over(tmp_path: Path) -> None:
    """The records are in the page cache, so that no read of the leader meets the damage."""

    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t", isr=(1, 2))
        await replicas.stop(3)
        client = await replicas.connect(1)
        for number in range(20):
            assert (await produced(client, b"%d" % number)).error_code == 0
        sound = log_bytes(replicas, 2)
        flip(segment(tmp_path, 1), 150)
        await replicas.start(3)
        await until(lambda: replicas.state().leader == 2)
        await until(lambda: is_whole(replicas))
        assert log_bytes(replicas, 1) == sound

    play(tmp_path, scenario)


def test_a_consumer_that_meets_damage_finds_the_records_at_another_leader(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        await fill(replicas)
        # Its segment ends in the middle.
        path = segment(tmp_path, 1)
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2])
        client = await replicas.connect(1)
        await client.ask(fetch_from("t", (0, 15)), 12)
        await until(lambda: replicas.state().leader == 2)
        other = await replicas.connect(2)
        found = only(await other.ask(fetch_from("t", (0, 15)), 12))
        assert values(found.records) == [b"%d" % number for number in range(15, 20)]
        await until(lambda: is_whole(replicas))

    play(tmp_path, scenario)


def test_damage_that_recovery_finds_is_replaced_before_it_fetches(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t", flush_policy="commit")
        await fill(replicas)
        sound = log_bytes(replicas, 1)
        world = replicas.worlds[3]
        world.disk._checkpoints.store(world.disk._logs.values())  # the recovery point is at the end
        world.disk.unclean.add("test")
        await replicas.set_isr("t", (1, 2))
        await replicas.stop(3)
        (tmp_path / "3" / "t-0" / "leader-epoch-checkpoint").unlink()
        flip(segment(tmp_path, 3), 16)
        await replicas.start(3)
        await until(lambda: is_whole(replicas))
        assert log_bytes(replicas, 3) == sound

    play(tmp_path, scenario)


@pytest.mark.parametrize("count", [1, 3])
def test_only_a_single_replica_is_restored_by_hand(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t", replicas=tuple(range(1, count + 1)))
        await fill(replicas)
        await replicas.elect("t", count, isr=tuple(range(1, count + 1))[-2:])
        replicas.worlds[1].disk.unclean.add("test")
        await replicas.stop(1)
        (tmp_path / "1" / "t-0" / "leader-epoch-checkpoint").unlink()
        flip(segment(tmp_path, 1), 16)
        await replicas.start(1)
        if count > 1:
            await until(lambda: is_whole(replicas))

    play(tmp_path, scenario, count)
    assert "t-0/00000000000000000000.log is damaged" in caplog.text
    assert ("t-0 is damaged, and is fetched again from another replica" in caplog.text) is (count > 1)
    assert ("Restore the folder from a copy" in caplog.text) is (count == 1)


def test_without_another_candidate_the_partition_is_offline_and_its_log_is_kept(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        for node in (2, 3):
            await replicas.stop(node)
            await replicas.fence(node)
        await replicas.create("t", isr=(1,))
        client = await replicas.connect(1)
        for number in range(20):
            assert (await produced(client, b"%d" % number)).error_code == 0
        data = segment(tmp_path, 1).read_bytes()
        flip(segment(tmp_path, 1), len(data) // 2)
        await verify(replicas, 1)
        await until(lambda: replicas.state().leader == -1)
        state = replicas.state()
        assert (state.isr, state.eligible, state.last_known_eligible) == ((), (), ())
        refused = await produced(client, b"x")
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER.code
        # A replica that returns is no candidate either: it does not have the records.
        await replicas.start(2)
        await asyncio.sleep(0.1)
        assert replicas.state().leader == -1
        assert len(segment(tmp_path, 1).read_bytes()) == len(data), "the operator may still want it"
        # The operator chooses the other replica: what only this one had is lost.
        await replicas.elect("t", 2, isr=(2,))
        await until(lambda: set(replicas.state().isr) == {1, 2})
        assert replicas.partition(1).log.written_offset == 0

    play(tmp_path, scenario, unclean_leader_election_enable="false")


def test_a_replica_that_stopped_before_it_was_replaced_is_replaced(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        await fill(replicas)
        flip(segment(tmp_path, 3), 100)
        broker = replicas.worlds[3].broker
        broker.disk.remove_log = _fails  # type: ignore[method-assign]
        await verify(replicas, 3)

        def has_metadata() -> bool:
            # In a cluster a broker knows what is committed before it opens its logs; here what it received.
            state = broker.metadata.image.partition("t", 0)
            return state is not None and LOST_DIRECTORY in state.directories

        await until(has_metadata)
        await replicas.stop(3)
        await replicas.start(3)
        await until(lambda: is_whole(replicas))

    play(tmp_path, scenario)


def _fails(partition: TopicPartition) -> None:
    raise OSError("the disk is busy")


def refuse_assignments(replicas: Replicas) -> Callable[[], None]:
    """The controller cannot be reached with damaged replicas until the result is called."""
    request = replicas.request

    async def refused(asked: Any) -> Any:
        if isinstance(asked, AssignReplicasToDirsRequest):
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "no controller answers")
        return await request(asked)

    def accept() -> None:
        del replicas.request

    replicas.request = refused  # type: ignore[method-assign, assignment]
    return accept


def test_a_replica_that_is_elected_before_its_damage_is_known_neither_serves_nor_truncates_others(
    tmp_path: Path,
) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        await fill(replicas)
        accept = refuse_assignments(replicas)
        replicas.partition(2).log.truncate_to(5)
        # The leader dies, and the controller knows no better.
        await replicas.stop(1)
        await replicas.elect("t", 2, isr=(2, 3))
        client = await replicas.connect(2)
        assert (await produced(client, b"x")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER.code
        truncations = replicas.partition(3).log.truncations  # type: ignore[attr-defined]
        await asyncio.sleep(0.2)
        accept()
        await until(lambda: replicas.state().leader == 3)
        assert replicas.partition(3).log.truncations == truncations  # type: ignore[attr-defined]
        await until(lambda: is_whole(replicas, (2, 3)))
        assert (await produced(await replicas.connect(3), b"x")).base_offset == 20

    play(tmp_path, scenario)


def test_many_replicas_are_replaced_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 9
    looked_up: list[TopicPartition] = []

    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t", count)
        last = TopicPartition("t", count - 1)
        await until(lambda: all(last in world.broker.partitions for world in replicas.worlds.values()))
        broker = replicas.worlds[3].broker
        damaged = broker.replication._damaged
        is_unreported, recreate_some = damaged._is_unreported, damaged._recreate_some
        recreated: list[int] = []

        def recreate() -> None:
            before = sum(found.is_recreated for found in damaged._found.values())
            recreate_some()
            recreated.append(sum(found.is_recreated for found in damaged._found.values()) - before)

        monkeypatch.setattr(damaged, "_recreate_some", recreate)

        def look_up(name: TopicPartition) -> bool:
            looked_up.append(name)
            return is_unreported(name)

        monkeypatch.setattr(damaged, "_is_unreported", look_up)
        for index in range(count):
            damaged.add(replicas.partition(3, "t", index), "a test")
        assert len(looked_up) == count, "each costs the same, however many there are"
        await until(lambda: len(losses(replicas)) == count)
        await until(
            lambda: all(
                set(replicas.state("t", index).isr) == {1, 2, 3}
                and set(replicas.state("t", index).directories) == {DIRECTORY}
                for index in range(count)
            )
        )
        assert sum(recreated) == count and max(recreated) == 2

    monkeypatch.setattr(damaged_replicas, "RECREATED_PER_STEP", 2)
    play(tmp_path, scenario)


@pytest.mark.parametrize("is_reported", [False, True])
def test_a_stop_is_clean_once_the_damage_is_known(tmp_path: Path, is_reported: bool) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        await fill(replicas)
        mark = tmp_path / "2" / ".kafka_cleanshutdown"
        accept = refuse_assignments(replicas)
        replicas.partition(2).log.truncate_to(5)
        if is_reported:
            accept()
            await until(lambda: is_whole(replicas))
        await replicas.stop(2)
        assert mark.exists() is is_reported

    play(tmp_path, scenario)


async def has_to_wait(replicas: Replicas, node: int) -> bool:
    """Does the start of this node wait for metadata that has its damaged replicas?"""
    broker = replicas.worlds[node].broker
    is_waiting = False

    async def changed() -> None:
        nonlocal is_waiting
        is_waiting = True
        raise TimeoutError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker.metadata, "changed", changed)
        await broker.replication.damage_reported()
    return is_waiting


def test_a_start_waits_until_no_damaged_replica_can_be_elected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        await fill(replicas)
        refuse_assignments(replicas)
        replicas.partition(3).log.truncate_to(5)
        assert await has_to_wait(replicas, 3)
        assert "the controller does not know all damaged replicas yet" in caplog.text
        topic_id = replicas.image.topics["t"].id
        # As its last member it stays in the ISR, and cannot be elected.
        lost = [DIRECTORY, DIRECTORY, LOST_DIRECTORY]
        await replicas.change(PartitionChangeRecord(0, topic_id, leader=-1, isr=[3], directories=lost))
        assert not await has_to_wait(replicas, 3)

    play(tmp_path, scenario)


def test_a_start_does_not_wait_for_a_report_that_the_controller_cannot_understand(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        await fill(replicas)
        refuse_assignments(replicas)
        await replicas.change(FeatureLevelRecord("metadata.version", DIRECTORIES_LEVEL - 1))
        replicas.partition(3).log.truncate_to(5)
        assert not await has_to_wait(replicas, 3)

    play(tmp_path, scenario)


def test_sound_replicas_are_verified_without_effect(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        await fill(replicas)
        for node in (1, 2, 3):
            await verify(replicas, node)
        size_bytes = len(log_bytes(replicas, 1))
        brokers = [world.broker for world in replicas.worlds.values()]
        await until(lambda: all(broker.verification.verified_bytes >= size_bytes for broker in brokers))
        client = await replicas.connect(1)
        assert only(await client.ask(produce_to("t", (0, batch(b"x")), acks=-1), 9)).error_code == 0
        assert replicas.state().partition_epoch == 0

    play(tmp_path, scenario)
