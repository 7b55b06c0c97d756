"""Throttled replication: replicas that are not in sync wait, all others are not affected."""

from pathlib import Path

import pytest

from runnel.model.configs import ResourceType
from runnel.schemas.metadata import ConfigRecord
from tests.broker.replicas import Replicas, until
from tests.broker.test_replication import log_bytes, play, produced

LEADER, FOLLOWER = "leader.replication.throttled", "follower.replication.throttled"


async def set_rate(replicas: Replicas, name: str, rate: int) -> None:
    await replicas.change(ConfigRecord(ResourceType.BROKER, "", f"{name}.rate", str(rate)))


async def set_replicas(replicas: Replicas, name: str, value: str, topic: str = "t") -> None:
    await replicas.change(ConfigRecord(ResourceType.TOPIC, topic, f"{name}.replicas", value))


@pytest.mark.parametrize(
    ("direction", "throttled"), [(LEADER, "0:1"), (LEADER, "*"), (FOLLOWER, "0:3"), (FOLLOWER, "*")]
)
def test_a_new_replica_waits_for_the_rate_and_the_others_do_not(
    tmp_path: Path, direction: str, throttled: str
) -> None:
    async def scenario(replicas: Replicas) -> None:
        await set_rate(replicas, direction, 0)
        await replicas.stop(3)
        await replicas.create("t", isr=(1, 2))
        await replicas.create("other", isr=(1, 2))
        await set_replicas(replicas, direction, throttled)
        client = await replicas.connect(1)
        for number in range(20):
            assert (await produced(client, b"%d" % number)).error_code == 0
            assert (await produced(client, b"%d" % number, topic="other")).error_code == 0
        await replicas.start(3)
        await until(lambda: log_bytes(replicas, 3, "other") == log_bytes(replicas, 1, "other"))
        await until(lambda: set(replicas.state("other").isr) == {1, 2, 3})
        assert replicas.partition(3).log.written_offset == 0, "it is throttled"
        # The replicas that are in sync are not, though their records count.
        assert (await produced(client, b"x")).error_code == 0
        await set_rate(replicas, direction, 10**9)
        await until(lambda: set(replicas.state().isr) == {1, 2, 3})
        assert log_bytes(replicas, 3) == log_bytes(replicas, 1)
        # In sync, it is not throttled any more.
        await set_rate(replicas, direction, 0)
        for number in range(5):
            assert (await produced(client, b"%d" % number)).error_code == 0
        assert replicas.partition(3).log.written_offset == 26

    play(tmp_path, scenario, broker_session_timeout_ms="60000")


def test_replicas_of_other_brokers_are_not_throttled(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t", isr=(1, 2))
        await set_replicas(replicas, LEADER, "0:2,1:1")
        await set_replicas(replicas, FOLLOWER, "0:1,1:3")
        await set_rate(replicas, LEADER, 0)
        await set_rate(replicas, FOLLOWER, 0)
        client = await replicas.connect(1)
        assert (await produced(client, b"x")).error_code == 0
        await until(lambda: set(replicas.state().isr) == {1, 2, 3})

    play(tmp_path, scenario, broker_session_timeout_ms="60000")


def test_a_throttled_replica_gets_small_responses(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.stop(3)
        await replicas.create("t", isr=(1, 2))
        client = await replicas.connect(1)
        for _ in range(8):
            assert (await produced(client, bytes(50_000))).error_code == 0
        await set_replicas(replicas, LEADER, "*")
        await set_rate(replicas, LEADER, 200_000)
        await replicas.start(3)
        await until(lambda: replicas.partition(3).log.written_offset > 0)
        assert replicas.partition(3).log.written_offset <= 2, "64 KiB at once"
        await until(lambda: set(replicas.state().isr) == {1, 2, 3})

    play(tmp_path, scenario, broker_session_timeout_ms="60000")
