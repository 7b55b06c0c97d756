"""The HTTP part of the benchmark: what it sends is stored, what it receives has the records, errors count."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from runnel.client import SyncClient
from tools.bench import http_gateway, loadgen
from tools.bench.http_gateway import Served
from tools.bench.http_table import HTTP, NATIVE, RECORD_BYTES, WORKLOADS, Workload, http_misses, http_table
from tools.bench.loadgen import Load, LoadFailed
from tools.bench.measures import Bench
from tools.bench.systems import Runnel
from tools.bench.warm_up import WarmUpPlan
from tools.fetch.programs import Unavailable
from tools.gateway_process import GatewayProcess

SHORT = WarmUpPlan(window_s=0.2, limit_s=0.0)


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return loadgen.build()
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def served(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("http")
    running = Runnel().launch(folder / "broker")
    try:
        broker = Bench(running, program, 0.2, 1.0, None)
        with GatewayProcess(broker.bootstrap) as gateway:
            yield Served(broker, gateway, folder)
    finally:
        running.stop()


@pytest.mark.parametrize("records", [1, 100])
def test_what_is_published_is_stored(served: Served, records: int) -> None:
    topic = f"published-{records}"
    served.broker.create(topic, http_gateway.PARTITIONS)
    load, cpu_s = served.by_http(Workload("publish", records, 3), topic, 0.3)
    with SyncClient(served.broker.bootstrap) as client:
        messages = client.read(topic)
    assert len(messages) == load.requests * records > 0
    assert {len(message.value or b"") for message in messages} == {RECORD_BYTES}
    assert len(load.latencies_ns) == load.requests
    assert cpu_s > 0


def send(served: Served, *requests: bytes, **options: object) -> Load:
    """Some requests, over and over."""
    file = served.folder / "given"
    file.write_bytes(b"".join(struct.pack(">i", len(each)) + each for each in requests))
    return loadgen.run(
        served.broker.program,
        "http",
        served.gateway.port,
        requests=file,
        connections=2,
        seconds=0.1,
        **options,
    )


def test_an_error_fails_the_load(served: Served) -> None:
    with pytest.raises(LoadFailed, match=r"errors: status 404: .*does not exist"):
        send(served, *http_gateway.publishes("localhost", "absent", 1))


def test_small_responses_count_as_empty(served: Served) -> None:
    served.broker.create("nothing", http_gateway.PARTITIONS)
    requests = http_gateway.subscribes("localhost", "nothing", 1)[: http_gateway.PARTITIONS]
    load = send(served, *requests, body_min=RECORD_BYTES)
    assert load.empty == load.requests > 0
    assert send(served, *requests, body_min=2).empty == 0


def test_both_ways_are_measured(program: Path, tmp_path: Path) -> None:
    # A batch each; a subscription without all of its records fails the load.
    workloads = [Workload("subscribe", 1, 1), Workload("subscribe", 100, 1), Workload("publish", 100, 1)]
    found = http_gateway.compare_http(tmp_path / "http", program, 1, 0.3, SHORT, {}, workloads)
    for way in (HTTP, NATIVE):
        (numbers,) = found["rounds"][way]
        for workload in workloads:
            assert numbers[f"{workload.key}_rps"] > 0
            assert 0 < numbers[f"{workload.key}_p50_us"] <= numbers[f"{workload.key}_p99_us"]
        assert set(found["warm_up"][way]) == {workload.key for workload in workloads}
    table = http_table(found["rounds"])
    assert len(table.splitlines()) == 2 + len(workloads)
    assert not (tmp_path / "http").exists()


def test_missed_floors_have_their_reason() -> None:
    figures = {"rps": 100.0, "p50_us": 3.0, "p99_us": 4.0, "cpu_us": 5.0}
    numbers = {f"{workload.key}_{name}": value for workload in WORKLOADS for name, value in figures.items()}
    slower = {**numbers, "http_publish_1_64_rps": 10.0, "http_publish_1_512_rps": 5.0}
    rounds = {HTTP: [slower], NATIVE: [numbers]}
    missed = http_misses(rounds, {"http_publish_1": "it is Python"})
    assert missed == "* **publish 1 record** (0.1x with 64, 0.05x with 512): it is Python"
    assert (
        "| publish 1 record, 64 connections | 10 | 3 | 4 | 5 | 100 | 3 | 4 | 0.1x | ≥ 0.2x |"
        in http_table(rounds)
    )
    assert http_misses({HTTP: [numbers], NATIVE: [numbers]}, {}) == ""
