"""A little of what `make fuzz` does at length, and proof that it would notice."""

import asyncio
import random
import struct
from collections import Counter

from runnel.broker.apis.handlers import CONTROLLER_APIS
from runnel.model.ids import NO_ID
from runnel.testing import Broker
from tools.fuzz.attack import Attack
from tools.fuzz.mutate import mutated
from tools.fuzz.run import bugs, fuzz, mutated_frames
from tools.fuzz.samples import TOPIC, ends_topic, peer_frames, sample_frames


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def test_a_broker_outlives_mutated_frames(tmp_path) -> None:
    outcome = fuzz(tmp_path, count=3000, seed=11)
    assert outcome.complaints == []
    assert outcome.outcomes.total() == 3000
    assert set(outcome.outcomes) >= {"answered", "refused"}
    assert outcome.recordings.failures == []
    assert min(outcome.kinds["declared"], outcome.kinds["captured"]) > 1000


def test_a_cluster_outlives_mutated_frames_to_its_controllers(caplog) -> None:
    topic_id = b"an id of 16 byte"
    with Broker(nodes=3) as cluster, cluster.client() as client:
        client.create_topic(TOPIC, partitions=1)
        pool = peer_frames(cluster.nodes[0].settings["cluster.id"], topic_id, CONTROLLER_APIS)
        frames = mutated_frames(1000, 3, {"declared": pool}, Counter(), topic_id)
        ports = [int(node.settings["listeners"].rpartition(":")[2]) for node in cluster.nodes]
        attacks = [Attack(port, frames, connections=4) for port in ports]

        async def attack() -> None:
            await asyncio.gather(*(each.run() for each in attacks))

        asyncio.run(attack())
        client.send(TOPIC, b"after")
    outcomes = sum((each.outcomes for each in attacks), Counter[str]())
    assert outcomes.total() == 1000
    assert set(outcomes) >= {"answered", "refused"}
    assert bugs(caplog.text) == []


def test_a_seed_breaks_the_same_frames_again() -> None:
    pool = sample_frames(NO_ID)
    first, second = (
        [mutated(chance, pool) for _ in range(200)] for chance in (random.Random(5), random.Random(5))
    )
    assert first == second
    assert sum(frame in pool for frame in first) < 20


def test_what_is_captured_does_not_change_how_declared_frames_break() -> None:
    def declared(captured: list[bytes]) -> list[bytes]:
        pools = {"declared": [frame(b"d" * 20)], "captured": captured}
        return [broken for broken in mutated_frames(300, 5, pools, Counter(), NO_ID) if b"ddd" in broken]

    assert declared([frame(b"c" * 30)]) == declared([frame(b"e" * 50), frame(b"c" * 9)])


def test_no_broken_frame_deletes_the_topic_that_the_others_need() -> None:
    topic_id = b"an id of 16 byte"
    by_name = frame(b"\0\x14\0\3\0\0\0\7\xff\xff\0\0\0\1\0\4" + TOPIC.encode())
    pools = {"captured": [by_name, frame(b"\0\x14\0\6" + topic_id), frame(b"\0\x14\0\3 other")]}
    assert [ends_topic(one, topic_id) for one in pools["captured"]] == [True, True, False]
    broken = list(mutated_frames(500, 5, pools, Counter(), topic_id))
    assert len(broken) == 500
    assert not any(ends_topic(one, topic_id) for one in broken)


def test_an_exception_in_the_log_is_a_finding() -> None:
    log = (
        "12:00 ERROR runnel.broker: FetchRequest v4 failed\n"
        "Traceback (most recent call last):\n"
        "KeyError: 'x'\n"
        "runnel.model.errors.OddError: y\n"
        "12:01 WARNING runnel.net: closed 127.0.0.1:1: malformed request: Error in header\n"
    )
    assert bugs(log) == ["KeyError: 'x'", "runnel.model.errors.OddError: y"]
