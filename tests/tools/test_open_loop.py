"""Latencies of an open loop: a stall is charged to every record that was due during it."""

import subprocess
import threading
import time
from pathlib import Path

import pytest

from runnel.client import SyncClient
from runnel.server.bench.percentiles import percentile
from tools.bench import loadgen
from tools.bench.percentiles import percentiles_us
from tools.broker_process import BrokerProcess
from tools.fetch.programs import Unavailable

STALL_S = 1.0
RATE, SECONDS = 500, 4


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return loadgen.build()
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([7], 0.5, 7),
        ([7], 0.999, 7),
        ([1, 2], 0.5, 1),
        ([1, 2, 3], 0.5, 2),
        (list(range(1, 101)), 0.99, 99),
        (list(range(1, 101)), 0.999, 100),
        (list(range(1, 1001)), 0.999, 999),
    ],
)
def test_percentiles_are_by_nearest_rank(values: list[int], share: float, expected: int) -> None:
    assert percentile(values, share) == expected


def test_percentiles_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_percentiles_are_of_sorted_values_in_microseconds() -> None:
    assert percentiles_us([3000, 1000, 2000]) == {"p50": 2.0, "p99": 3.0, "p999": 3.0}


def test_a_stall_is_charged_to_every_record_due_during_it(program: Path, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with SyncClient(broker.bootstrap) as client:
            client.create_topic("stalled", partitions=2)

        def stall() -> None:
            time.sleep(SECONDS / 4)
            with broker.held():
                time.sleep(STALL_S)

        stalling = threading.Thread(target=stall)
        stalling.start()
        load = loadgen.run(
            program, "latency", broker.port, topic="stalled", partitions=2, rate=RATE, seconds=SECONDS
        )
        stalling.join()
    assert len(load.latencies_ns) == len(load.arrivals_ns) == RATE * SECONDS
    for latencies in (load.latencies_ns, load.arrivals_ns):
        # Whatever was due in the first half of the stall waited for at least its second half.
        late = [latency for latency in latencies if latency >= STALL_S / 2 * 1e9]
        assert len(late) >= RATE * STALL_S / 2 * 0.9
    assert load.latency_us["p99"] >= STALL_S / 2 * 1e6


def test_loads_count_what_they_send(program: Path, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with SyncClient(broker.bootstrap) as client:
            client.create_topic("loaded", partitions=2)
            options = {"topic": "loaded", "partitions": 2, "connections": 4, "in_flight": 3}
            produced = loadgen.run(
                program, "produce", broker.port, **options, seconds=0.3, records=5, record_bytes=50
            )
            messages = client.read("loaded")
            assert len(messages) == produced.requests * 5
            assert {len(message.value or b"") for message in messages} == {50}
        fetched = loadgen.run(program, "fetch", broker.port, **options, seconds=0.3, offset_end=5, step=5)
    assert fetched.requests == len(fetched.latencies_ns) > 0
    assert fetched.empty == 0
    assert produced.latencies_ns[0] > 0


def test_each_partition_is_sent_to_its_leader(program: Path, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "one") as one, BrokerProcess(tmp_path / "two") as two:
        leaders = [one.port, two.port, two.port, two.port, two.port]
        written = []
        for broker in (one, two):
            with SyncClient(broker.bootstrap) as client:
                client.create_topic("spread", partitions=5)
        options = {"topic": "spread", "partitions": 5, "connections": 3, "in_flight": 2}
        produced = loadgen.run(
            program, "produce", 0, **options, seconds=0.3, leaders=",".join(map(str, leaders))
        )
        for broker in (one, two):
            with SyncClient(broker.bootstrap) as client:
                written.append([message.partition for message in client.read("spread")])
    assert set(written[0]) == {0}
    assert set(written[1]) == {1, 2, 3, 4}
    assert sum(map(len, written)) == produced.requests


def test_an_error_of_the_broker_fails_the_load(program: Path, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", {"auto.create.topics.enable": "false"}) as broker:
        options = {"topic": "absent", "partitions": 1, "connections": 1, "in_flight": 1}
        with pytest.raises(loadgen.LoadFailed, match="errors: error code 3"):
            loadgen.run(program, "produce", broker.port, **options, seconds=0.1)


def test_a_missing_option_is_named(program: Path) -> None:
    done = subprocess.run([str(program), "produce", "port=1"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "loadgen: topic=... is missing\n")
