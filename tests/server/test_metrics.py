"""Metrics of a real broker against what real clients did."""

import asyncio
import contextlib
import os
import random
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from prometheus_client.parser import text_string_to_metric_families

from runnel.broker.metrics import compression, partitions, traffic
from runnel.broker.runtime.produce_template import ProduceTemplate
from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.controller.config_broker_node import ADMIN_LISTENERS
from runnel.model.configs import ResourceType
from runnel.server import admin
from runnel.testing import Broker
from tests.observe.scraping import get, scrape, total, value
from tools.certificates import CertificateAuthority

TOPICS = "kafka_server_brokertopicmetrics_"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"auto.create.topics.enable": "false"}, admin=True) as running:
        yield running


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "MAX_AGE_SECONDS", 0.0)


def log_bytes(broker: Broker, topic: str) -> int:
    """The size of the segments of a topic."""
    assert broker.data_dir is not None
    return sum(path.stat().st_size for path in Path(broker.data_dir).glob(f"{topic}-*/*.log"))


def exposed(broker: Broker) -> dict[str, str]:
    """The types of all metrics, by name."""
    text = get(broker.admin_address, "/metrics")[2].decode()
    return dict(line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE "))


def documented() -> dict[str, str]:
    """The types of the metrics in the table of the documentation, by name."""
    page = (Path(__file__).parents[2] / "docs" / "OBSERVABILITY.md").read_text()
    page = page.partition("\n## Metrics\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in page.splitlines() if re.match(r"\| `(kafka|runnel|process)_", line)]
    return {name: row[1] for row in rows for name in re.findall(r"`(\w+)`", row[0])}


def produce(bootstrap: str, topic: str, count: int, **options: object) -> None:
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **options})
    for number in range(count):
        producer.produce(topic, b"value %d" % number, partition=0, on_delivery=lambda e, _: errors.append(e))
        producer.poll(0)
    assert producer.flush(30) == 0
    assert errors == [None] * count


def test_the_exposition_is_that_of_prometheus(broker: Broker) -> None:
    status, headers, body = get(broker.admin_address, "/metrics")
    assert status == 200
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(body.decode()))
    names = [family.name for family in families]
    assert len(names) == len(set(names)) > 60
    read = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }
    ours = scrape(broker.admin_address)
    assert read.keys() == ours.keys()
    assert not any(family.type == "unknown" for family in families)
    assert value(ours, "runnel_collector_failures_total") == 0
    assert all(family.documentation for family in families)


def test_a_records_way_in_and_out_is_counted_exactly(broker: Broker) -> None:
    with broker.client() as client:
        client.create_topic("in-and-out", partitions=2)
        for number in range(5):
            client.send("in-and-out", b"x" * 100 * number, partition=number % 2)
        assert len(list(client.read("in-and-out"))) == 5
    samples = scrape(broker.admin_address)
    assert value(samples, f"{TOPICS}messagesin_total", topic="in-and-out") == 5
    assert value(samples, f"{TOPICS}bytesin_total", topic="in-and-out") == log_bytes(broker, "in-and-out")
    assert value(samples, f"{TOPICS}bytesout_total", topic="in-and-out") == log_bytes(broker, "in-and-out")
    assert value(samples, f"{TOPICS}totalproducerequests_total", topic="in-and-out") == 5
    assert value(samples, f"{TOPICS}totalfetchrequests_total", topic="in-and-out") >= 2
    for name in ("messagesin", "bytesin", "bytesout", "totalproducerequests"):
        by_topic = total(samples, f"{TOPICS}{name}_total") - value(samples, f"{TOPICS}{name}_total")
        assert value(samples, f"{TOPICS}{name}_total") >= by_topic
    offsets = [
        value(samples, "kafka_topic_partition_current_offset", topic="in-and-out", partition=index)
        for index in "01"
    ]
    assert offsets == [3, 2]
    sizes = total(samples, "kafka_log_log_size", topic="in-and-out")
    assert sizes == log_bytes(broker, "in-and-out")
    assert value(samples, "kafka_topic_partitions", topic="in-and-out") == 2


def test_repeated_requests_are_counted_by_their_number(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []
    stage = ProduceTemplate._stage

    def counted(self, partition, batches):
        runs.append(len(batches))
        return stage(self, partition, batches)

    monkeypatch.setattr(ProduceTemplate, "_stage", counted)
    with broker.client() as client:
        client.create_topic("repeated")
    before = scrape(broker.admin_address)
    produce(broker.bootstrap_servers, "repeated", 2_000, **{"batch.num.messages": 1})
    samples = scrape(broker.admin_address)
    assert sum(runs) > 1_000, "most requests repeat the first one"
    assert value(samples, f"{TOPICS}messagesin_total", topic="repeated") == 2_000
    assert value(samples, f"{TOPICS}totalproducerequests_total", topic="repeated") == 2_000
    assert value(samples, f"{TOPICS}bytesin_total", topic="repeated") == log_bytes(broker, "repeated")
    requests = ("runnel_request_seconds_count", {"api": "Produce"})
    served = value(samples, requests[0], **requests[1]) - before.get(
        (requests[0], frozenset(requests[1].items())), 0
    )
    assert served == 2_000
    assert 0 < value(samples, "runnel_request_seconds_sum", api="Produce") < 2_000
    ones = value(samples, "runnel_produce_batch_records_bucket", le="1") - value(
        before, "runnel_produce_batch_records_bucket", le="1"
    )
    assert ones == 2_000


def test_repeated_fetches_are_counted_by_their_number(broker: Broker) -> None:
    with broker.client() as client:
        client.create_topic("read-again")
    produce(broker.bootstrap_servers, "read-again", 200, **{"batch.num.messages": 1})
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "metrics",
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 1_000,
            "queued.min.messages": 1,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.subscribe(["read-again"])
    read = 0
    while read < 200:
        message = consumer.poll(20)
        assert message is not None and message.error() is None
        read += 1
    consumer.commit(asynchronous=False)
    consumer.close()
    samples = scrape(broker.admin_address)
    # A consumer may request records again that it has not kept.
    size_bytes = log_bytes(broker, "read-again")
    assert size_bytes <= value(samples, f"{TOPICS}bytesout_total", topic="read-again") <= 2 * size_bytes
    assert value(samples, f"{TOPICS}totalfetchrequests_total", topic="read-again") > 10
    assert value(samples, "runnel_commits_total") >= 1
    assert value(samples, "runnel_group_rebalances_total", protocol="classic") >= 1
    assert total(samples, "runnel_groups", protocol="classic") >= 1


def test_failed_requests_are_counted(broker: Broker) -> None:
    with broker.client() as client:
        client.create_topic("strict", settings={"max.message.bytes": "1000"})
        client.send("strict", b"small")
        before = scrape(broker.admin_address)
        with pytest.raises(Exception, match="MESSAGE_TOO_LARGE"):
            client.send("strict", b"x" * 5_000)
    after = scrape(broker.admin_address)
    errors = frozenset({("api", "Produce"), ("error", "MESSAGE_TOO_LARGE")})
    failed = after["runnel_request_errors_total", errors]
    assert failed - before.get(("runnel_request_errors_total", errors), 0) >= 1
    assert value(after, f"{TOPICS}failedproducerequests_total", topic="strict") == failed
    assert value(after, f"{TOPICS}messagesin_total", topic="strict") == 1
    assert value(after, f"{TOPICS}totalproducerequests_total", topic="strict") == 1 + failed


def test_requests_for_unknown_topics_add_no_series(broker: Broker) -> None:
    before = scrape(broker.admin_address)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": 1_000, "log_level": 0}
    )
    producer.produce("no-such-topic", b"x")
    producer.flush(10)
    after = scrape(broker.admin_address)
    assert not [labels for _, labels in after if ("topic", "no-such-topic") in labels]
    assert value(after, f"{TOPICS}messagesin_total") == value(before, f"{TOPICS}messagesin_total")


def test_sums_keep_what_deleted_topics_had(broker: Broker) -> None:
    with broker.client() as client:
        client.create_topic("short-lived")
        client.send_all("short-lived", [(None, b"x")] * 50)
        before = scrape(broker.admin_address)
        client.delete_topic("short-lived")
        after = scrape(broker.admin_address)
    assert value(before, f"{TOPICS}messagesin_total", topic="short-lived") == 50
    assert (f"{TOPICS}messagesin_total", frozenset({("topic", "short-lived")})) not in after
    assert value(after, f"{TOPICS}messagesin_total") >= value(before, f"{TOPICS}messagesin_total")


def test_above_a_limit_only_sums_are_shown(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    with broker.client() as client:
        client.create_topic("wide", partitions=3)
        client.send("wide", b"x")
    assert value(scrape(broker.admin_address), "runnel_partition_series_omitted") == 0
    monkeypatch.setattr(partitions, "PARTITION_SERIES_MAX", 2)
    monkeypatch.setattr(traffic, "TOPIC_SERIES_MAX", 0)
    samples = scrape(broker.admin_address)
    assert value(samples, "runnel_partition_series_omitted") == 1
    # The lag of groups has a limit of its own.
    with_partition = {name for name, labels in samples if "partition" in dict(labels)}
    assert not [name for name in with_partition if not name.startswith("kafka_consumergroup_")]
    assert not [name for name, labels in samples if name.startswith(TOPICS) and labels]
    assert value(samples, f"{TOPICS}messagesin_total") >= 1
    assert value(samples, "kafka_server_replicamanager_partitioncount") >= 3
    assert value(samples, "runnel_log_bytes") > 0


def test_a_waiting_consumer_shows_the_time_to_deliver(broker: Broker) -> None:
    name = "runnel_end_to_end_seconds_count"
    with broker.client() as client:
        client.create_topic("awaited")
    before = value(scrape(broker.admin_address), name)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "waits", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["awaited"])
    while not consumer.assignment():
        assert consumer.poll(0.1) is None
    assert consumer.poll(0.5) is None, "it waits for records"
    for number in range(5):
        produce(broker.bootstrap_servers, "awaited", 1)
        message = consumer.poll(20)
        assert message is not None and message.offset() == number
    consumer.close()
    after = scrape(broker.admin_address)
    assert value(after, name) - before >= 1
    assert value(after, "runnel_end_to_end_seconds_sum") >= 0


def test_the_address_is_found_by_kafkas_protocol(broker: Broker) -> None:
    async def ask() -> str | None:
        async with Cluster(broker.bootstrap_servers) as cluster:
            (setting,) = await Admin(cluster).settings(ResourceType.BROKER, "1", keys=[ADMIN_LISTENERS])
            assert setting.is_read_only
        return setting.value

    address = asyncio.run(ask())
    assert address == broker.admin_address
    assert get(address, "/livez")[0] == 200


def test_process_disk_and_loop(broker: Broker) -> None:
    samples = scrape(broker.admin_address)
    deadline = time.monotonic() + 30
    # The facts of the host are those of the last interval, and a broker that just started has no delays yet.
    while time.monotonic() < deadline and (
        value(samples, "runnel_loop_delay_seconds_count") == 0
        or abs(value(samples, "process_open_fds") - len(os.listdir("/proc/self/fd"))) > 20
    ):
        time.sleep(0.2)
        samples = scrape(broker.admin_address)
    assert value(samples, "process_open_fds") == pytest.approx(len(os.listdir("/proc/self/fd")), abs=20)
    assert value(samples, "process_resident_memory_bytes") > 10_000_000
    volume = os.statvfs(broker.data_dir or "")
    assert value(samples, "runnel_disk_total_bytes") == volume.f_frsize * volume.f_blocks
    assert 0 < value(samples, "runnel_disk_free_bytes") <= value(samples, "runnel_disk_total_bytes")
    assert value(samples, "kafka_log_logmanager_offlinelogdirectorycount") == 0
    assert value(samples, "runnel_failed_logs") == 0
    assert value(samples, "runnel_loop_delay_seconds_count") > 0
    assert value(samples, "runnel_loop_delay_max_seconds") > 0
    assert value(samples, "runnel_worker_queue", pool="sync") >= 0
    # Its own topics are made durable at the latest by the metadata log, which waits for that.
    assert value(samples, "runnel_fsync_seconds_count") > 0
    assert value(samples, "runnel_fsync_seconds_sum") > 0
    with broker.client():
        connected = value(
            scrape(broker.admin_address),
            "kafka_server_socket_server_metrics_connection_count",
            listener="PLAINTEXT",
        )
    assert connected >= 1


def test_the_controller_and_the_quorum_of_a_single_node(broker: Broker) -> None:
    samples = scrape(broker.admin_address)
    assert value(samples, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert value(samples, "kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    assert value(samples, "kafka_brokers") == 1
    assert value(samples, "kafka_server_raftmetrics_current_state", current_state="leader") == 1
    assert value(samples, "kafka_server_raftmetrics_current_leader") == 1
    assert (
        0
        < value(samples, "kafka_server_raftmetrics_high_watermark")
        <= value(samples, "kafka_server_raftmetrics_log_end_offset")
    )


def test_the_ratio_of_compression_is_that_of_the_batches(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "INTERVAL_MS", 100)
    with broker.client() as client:
        client.create_topic("squeezed")
        client.create_topic("plain")
        client.send("plain", b"x" * 1_000)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "compression.type": "zstd", "linger.ms": 100}
    )
    for _ in range(100):
        producer.produce("squeezed", b"the same again and again" * 10)
    assert producer.flush(30) == 0
    # Topics are sampled a few seconds apart.
    found: dict[str, float] = {}
    deadline = time.monotonic() + 30
    while not {"squeezed", "plain"} <= found.keys() and time.monotonic() < deadline:
        time.sleep(0.05)
        samples = scrape(broker.admin_address)
        found = {
            dict(labels)["topic"]: each for (name, labels), each in samples.items() if "compression" in name
        }
    assert found["plain"] == 1
    assert found["squeezed"] > 10


def test_open_and_late_transactions(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    with broker.client() as client:
        client.create_topic("ledger")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "slow"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("ledger", b"uncommitted")
    producer.flush(30)
    samples = scrape(broker.admin_address)
    assert value(samples, "runnel_transactions", state="Ongoing") == 1
    assert 0 <= value(samples, "runnel_transaction_oldest_seconds") < 60
    late = "kafka_server_replicamanager_partitionswithlatetransactionscount"
    assert value(samples, late) == 0
    monkeypatch.setattr(partitions, "_late_ms", lambda settings: -1)
    assert value(scrape(broker.admin_address), late) == 1
    producer.commit_transaction(30)
    samples = scrape(broker.admin_address)
    assert value(samples, late) == 0
    assert value(samples, "runnel_transaction_oldest_seconds") == 0


def test_traffic_over_tls_is_counted_as_any_other(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("broker").write(tmp_path / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.write(tmp_path / "ca.pem"),
    }
    with Broker(settings, security_protocol="SSL", admin=True) as broker:
        options = {
            "security.protocol": "SSL",
            "ssl.ca.location": str(tmp_path / "ca.pem"),
            "enable.ssl.certificate.verification": "false",
            "batch.num.messages": 1,
        }
        produce(broker.bootstrap_servers, "sealed", 500, **options)
        samples = scrape(broker.admin_address)
        assert value(samples, f"{TOPICS}messagesin_total", topic="sealed") == 500
        assert value(samples, f"{TOPICS}bytesin_total", topic="sealed") == log_bytes(broker, "sealed")
        assert value(samples, "runnel_request_seconds_count", api="Produce") == 500
        assert 0 < value(samples, "runnel_request_seconds_sum", api="Produce") < 500
        assert value(samples, "runnel_certificate_expiry_timestamp_seconds", listener="SSL") > 1_700_000_000
        # The active controller of a broker with TLS shows every metric there is.
        assert exposed(broker) == documented()


def test_the_text_is_made_once_for_all_that_ask_within_a_second(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "MAX_AGE_SECONDS", 60.0)
    first = get(broker.admin_address, "/metrics")[2]
    with broker.client() as client:
        client.create_topic("unseen")
    assert get(broker.admin_address, "/metrics")[2] == first
    monkeypatch.setattr(admin, "MAX_AGE_SECONDS", 0.0)
    assert b'topic="unseen"' in get(broker.admin_address, "/metrics")[2]


def test_without_admin_there_is_no_listener() -> None:
    with Broker() as broker:
        assert broker.admin_address is None


def test_a_broker_serves_while_its_admin_listener_is_flooded(broker: Broker) -> None:
    assert broker.admin_address is not None
    host, _, port = broker.admin_address.rpartition(":")
    source = random.Random(7)
    flood = []
    for number in range(200):
        connected = socket.create_connection((host, int(port)), timeout=20)
        # Some send garbage, some the beginning of a request, some ask for more than they receive.
        data = (
            source.randbytes(3_000),
            b"GET /metrics HTTP/1.1\r\nA:",
            b"GET /metrics HTTP/1.1\r\n\r\n" * 50,
        )
        with contextlib.suppress(OSError):
            connected.sendall(data[number % 3])
        flood.append(connected)
    with broker.client() as client:
        client.create_topic("undisturbed")
        client.send_all("undisturbed", [(None, b"%d" % number) for number in range(500)])
        assert len(list(client.read("undisturbed"))) == 500
    for connected in flood:
        connected.close()
    assert get(broker.admin_address, "/livez")[0] == 200
    assert value(scrape(broker.admin_address), f"{TOPICS}messagesin_total", topic="undisturbed") == 500
