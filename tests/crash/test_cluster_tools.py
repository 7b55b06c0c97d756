"""The parts of `make crash ONLY=cluster` that measure and verify: gaps, plans, replicas, damage, clocks."""

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tools.cluster.nodes import Blueprint, NodeCluster, Place, RunnelNode
from tools.crash.cluster import clocks
from tools.crash.cluster.clocks import ShiftedClock
from tools.crash.cluster.disks import flip_bit
from tools.crash.cluster.faults import KINDS, POWER_CUT
from tools.crash.cluster.gaps import GapMeter, Gaps, percentile
from tools.crash.cluster.page import exceeded, page
from tools.crash.cluster.replicas import HEAD, LAST_OFFSET_DELTA, LAST_OFFSET_DELTA_AT, compare
from tools.crash.cluster.run import ROUNDS, plan
from tools.processes import child

A, B = ("t", 0), ("t", 1)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_longest_gap_is_that_of_the_slowest_partition() -> None:
    clock = Clock()
    meter = GapMeter([A, B], clock)
    for moment, partition in [(1.0, A), (1.0, B), (1.5, A), (4.0, A), (4.5, B)]:
        clock.now = moment
        meter.acknowledged(partition)
    assert meter.longest_s() == 3.5
    assert meter.waiting_since(4.0) == [A]
    meter.begin()
    assert meter.longest_s() == 0.5, "a gap that is open counts from its beginning"


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_percentiles_of_a_hundred_values(share: float, expected: float) -> None:
    values = [float(number) for number in range(1, 101)]
    random.Random(1).shuffle(values)
    assert percentile(values, share) == expected


def test_the_table_has_a_line_for_each_kind_and_target() -> None:
    gaps = Gaps()
    for kind, target, seconds in [("kill", "leader", 0.5), ("kill", "follower", 0.1), ("pause", "leader", 2)]:
        gaps.add(kind, target, seconds)
    lines = gaps.table()
    assert [line.split()[0] for line in lines[1:]] == ["kill", "follower", "leader", "pause"]
    assert lines[1].split()[-6:] == ["0.10", "s", "0.50", "s", "0.50", "s"]


def test_a_full_run_has_the_rounds_of_each_kind_and_a_short_one_its_share() -> None:
    kinds = [*KINDS, POWER_CUT]
    full = Counter(planned.kind.name for planned in plan(kinds, ROUNDS, seed=1))
    assert full["kill -9"] == 100
    assert full["pause"] == 30
    assert full.total() == ROUNDS == sum(count for name, count in full.items())
    short = Counter(planned.kind.name for planned in plan(kinds, 20, seed=1))
    assert short["kill -9"] == 10
    assert set(short) == set(full)
    assert plan(kinds, 20, seed=1) == plan(kinds, 20, seed=1) != plan(kinds, 20, seed=2)


def batch(offset: int, count: int, filler: bytes) -> bytes:
    body = bytearray(filler * 60)
    head = HEAD.pack(offset, len(body))
    LAST_OFFSET_DELTA.pack_into(body, LAST_OFFSET_DELTA_AT - len(head), count - 1)
    return head + body


def stored(folder: Path, *segments: list[bytes]) -> Path:
    (folder / "t-0").mkdir(parents=True)
    for number, batches in enumerate(segments):
        (folder / "t-0" / f"{number:020}.log").write_bytes(b"".join(batches))
    return folder


def test_replicas_that_differ_are_found(tmp_path) -> None:
    first, second, third = batch(0, 2, b"a"), batch(2, 1, b"b"), batch(3, 4, b"c")
    one = stored(tmp_path / "1", [first, second], [third])
    same = stored(tmp_path / "2", [first], [second, third])
    assert list(compare(A, {1: one, 2: same})) == []
    changed = stored(tmp_path / "3", [first, batch(2, 1, b"x"), third])
    assert list(compare(A, {1: one, 3: changed})) == ["t-0: nodes 1 and 3 differ in the batch at offset 2"]
    shorter = stored(tmp_path / "4", [first, second])
    assert "end at different offsets" in next(compare(A, {1: one, 4: shorter}))


def test_brokers_stop_while_there_are_controllers(tmp_path) -> None:
    stopped: list[int] = []

    class Node(RunnelNode):
        @property
        def is_running(self) -> bool:
            return self.number not in stopped

        def stop(self, timeout_s: float = 0.0) -> int:
            stopped.append(self.number)
            return 0

    blueprint = Blueprint({1: "one:1", 2: "two:1"}, controllers_only=frozenset({1, 2}))
    places = [Place(number, "127.0.0.1", tmp_path, tmp_path) for number in (1, 2, 3, 4)]
    assert NodeCluster({place.node: Node(place, blueprint) for place in places}).stop() == 0
    assert [set(stopped[:2]), set(stopped[2:])] == [{3, 4}, {1, 2}]


def test_a_flip_changes_one_bit_of_one_file(tmp_path) -> None:
    (tmp_path / "t-0").mkdir()
    path = tmp_path / "t-0" / "0.log"
    path.write_bytes(b"\x55" * 100 + bytes(1000))
    before = path.read_bytes()
    assert "t-0/0.log" in flip_bit(tmp_path, random.Random(1))
    changed = [one ^ other for one, other in zip(before, path.read_bytes(), strict=True) if one != other]
    assert len(changed) == 1
    assert changed[0].bit_count() == 1


@pytest.mark.skipif(clocks.missing() is not None, reason=str(clocks.missing()))
def test_a_clock_jumps_while_its_process_runs_and_the_monotonic_one_does_not(tmp_path) -> None:
    clock = ShiftedClock(tmp_path / "clock")
    code = (
        "import time, sys\n"
        "for _ in sys.stdin:\n"
        "    time.sleep(0.001)\n"
        "    print(time.time(), time.monotonic(), flush=True)"
    )
    with child(
        [sys.executable, "-c", code],
        env={**os.environ, **clock.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        seen = []
        for seconds in (0, 3600, -3600):
            clock.shift(seconds)
            process.stdin.write("\n")
            seen.append([float(value) for value in process.stdout.readline().split()])
        process.stdin.close()
    walls, monotonic = zip(*seen, strict=True)
    assert 3590 < walls[1] - walls[0] < 3660
    assert 7190 < walls[1] - walls[2] < 7260
    assert 0 <= monotonic[2] - monotonic[0] < 60


def test_the_page_has_a_row_for_each_goal_beside_kafka() -> None:
    measured, beside = Gaps(), Gaps()
    for seconds in (0.2, 0.6):
        measured.add("kill -9", "leader", seconds)
        measured.add("kill -9", "controller", 2 * seconds)
        measured.add("one-way partition", "follower", 3 * seconds)
    beside.add("kill -9", "leader", 11.0)
    lines = page(measured, Counter({"kill -9": 4}), beside).splitlines()
    (leader,) = (line for line in lines if "of the leader" in line)
    assert leader.split(" | ")[1:-1] == [
        "2",
        "p50 0.7 s, p99 1.5 s",
        "0.20",
        "0.60",
        "0.60",
        "11.00",
        "11.00",
    ]
    (every,) = (line for line in lines if "of any node" in line)
    assert every.split(" | ")[1] == "4"
    assert exceeded(measured) == []
    measured.add("pause", "leader", 2.6)
    assert exceeded(measured) == ["pause of 6 s: p99 2.60 s, the goal is 2.5 s"]
