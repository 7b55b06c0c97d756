"""The load generator over TLS and as a user: what it sends is stored, a wrong password is refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tools.bench import loadgen, security
from tools.bench.loadgen import LoadFailed
from tools.bench.measures import Bench
from tools.bench.systems import Runnel
from tools.bench.warm_up import WarmUpPlan
from tools.fetch.programs import Unavailable

LOAD = {"topic": "events", "partitions": 1, "connections": 2, "in_flight": 2}


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        loadgen.libssl()
        return loadgen.build()
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def broker(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[security.Secured]:
    folder: Path = tmp_path_factory.mktemp("security") / "broker"
    with security._brokers([Runnel()], folder, {}, program, seconds=0.2) as (secured,):
        security._add_user(secured.sasl)
        admin = AdminClient({"bootstrap.servers": secured.tls.bootstrap})
        admin.create_topics([NewTopic("events", 1, 1)])["events"].result(30)
        yield secured


def test_small_and_large_requests_over_tls(broker: security.Secured) -> None:
    before = broker.tls.shortest("events", 1)
    small, _ = broker.tls.load_once("produce", **LOAD)
    large, _ = broker.tls.load_once("produce", **LOAD, records=1000, record_bytes=1000)
    end = broker.tls.shortest("events", 1)
    assert end - before == small.requests + large.requests * 1000
    fetched, _ = broker.tls.load_once("fetch", **LOAD, offset_end=end - 1000, fetch_bytes=1_048_576)
    assert fetched.requests > 0 and fetched.empty == 0


def test_a_user_produces(broker: security.Secured) -> None:
    before = broker.user.shortest("events", 1)
    produced, _ = broker.user.load_once("produce", **LOAD)
    assert broker.user.shortest("events", 1) - before == produced.requests > 0


def test_connections_authenticate(broker: security.Secured) -> None:
    done, _ = broker.sasl.load_once("connect", processes=2)
    assert done.requests > 0


@pytest.mark.parametrize("way", ["sasl", "user"])
def test_a_wrong_password_is_refused(broker: security.Secured, way: str) -> None:
    bench: Bench = getattr(broker, way)
    with pytest.raises(LoadFailed):
        loadgen.run(
            bench.program, "connect", **{**bench.connection, "password": "wrong"}, seconds=0.1, processes=1
        )


def test_brokers_with_few_and_with_many_acls_are_compared(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "ACL_COUNTS", (2, 20))
    compared = security.Comparison({"Runnel": [{}]}, {"Runnel": {}})
    plan = WarmUpPlan(window_s=0.4, limit_s=0.4, first_limit_s=0.4)
    security.compare_acls(compared, [Runnel()], tmp_path, program, 0.4, plan)
    (numbers,) = compared.rounds["Runnel"]
    for name in ("acls_2", "acls_20", "acls_changing"):
        assert numbers[f"{name}_produce_rps"] > 0 and numbers[f"{name}_produce_cpu_us"] > 0
    ratio = numbers["acls_20_produce_cpu_us"] / numbers["acls_2_produce_cpu_us"]
    assert numbers["acls_cpu_ratio"] == ratio
    assert list(compared.warm_ups["Runnel"]) == ["user_acls_2", "user_acls_20", "user_acls_changing"]
