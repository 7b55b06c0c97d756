"""Alerts over the metrics of real brokers: from the condition to the webhook, and its resolution."""

import asyncio
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.groups import Groups
from runnel.client.producer import Producer
from runnel.client.reader import Reader
from runnel.client.transactions import Transactions
from runnel.gateway.alerts import evaluator as module
from runnel.gateway.alerts import state_topic
from runnel.model.ids import TopicPartition
from runnel.observe import grafana
from runnel.observe.alerts.prometheus_rules import expression
from runnel.observe.alerts.rules import RULES
from runnel.observe.exposition import parse
from runnel.observe.lag import verdict
from runnel.server import node_tls
from runnel.testing import Broker
from tests.client.hanging import leave_hanging, set_transaction_version
from tests.gateway.alerts.live import faster, heard, options, until_heard
from tests.gateway.alerts.servers import Webhook, webhook
from tests.gateway.alerts.test_evaluator import eventually, played, running
from tools.certificates import CertificateAuthority
from tools.crash import volumes

METRIC = re.compile(r"\b(?:kafka|runnel|process)_[a-z0-9_]+")
TYPE = re.compile(r"^# TYPE (\S+) (\S+)$", re.MULTILINE)


def known_names(text: str) -> set[str]:
    """All names that a scrape may contain: those of families without samples, too."""
    names = {name for name, _, _ in parse(text)}
    for name, kind in TYPE.findall(text):
        suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        names |= {name + suffix for suffix in suffixes}
    return names


def test_every_metric_of_the_rules_and_of_the_dashboard_is_in_a_scrape(tmp_path):
    # With TLS, so that it has a certificate.
    keystore = CertificateAuthority().issue("broker").write(tmp_path / "node.pem")
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": keystore}
    with (
        Broker(settings, security_protocol="SSL", admin=True) as broker,
        urlopen(f"http://{broker.admin_address}/metrics") as answer,
    ):
        known = known_names(answer.read().decode())
    for text in [*(expression(rule) for rule in RULES), *grafana.expressions()]:
        assert set(METRIC.findall(text)) <= known, text


@pytest.fixture(autouse=True)
def short_lease(monkeypatch):
    monkeypatch.setattr(module, "LEASE_MIN_S", 1.0)


def test_dead_letters_a_full_disk_and_latencies():
    """The thresholds are such that any broker exceeds them, until the evaluator is restarted without them."""
    exceeded = {
        "DiskSpaceCritical": "used=0",
        "ProduceLatencyHigh": "seconds=0.000001",
        "EndToEndLatencyHigh": "seconds=0.000001",
        "LoopDelayHigh": "seconds=0.000001",
    }

    async def scenario(broker: Broker, hook: Webhook) -> None:
        changes = (f"alerts.{name}.{threshold}".split("=") for name, threshold in exceeded.items())
        async with running(options(broker, hook, **dict(changes))) as evaluator:
            await eventually(lambda: evaluator.alerting.history.snapshot.at_ms > 0)
            traffic = asyncio.create_task(_traffic(broker))
            await until_heard(hook, "firing", {*exceeded, "DeadLettersGrowing"})
            traffic.cancel()
            await asyncio.gather(traffic, return_exceptions=True)
            # Ten minutes without another dead letter.
            async with faster(evaluator, 300):
                await until_heard(hook, "resolved", {"DeadLettersGrowing"})
        async with running(options(broker, hook)):
            await until_heard(hook, "resolved", set(exceeded))

    with Broker(admin=True) as broker, webhook() as hook:
        played(lambda: scenario(broker, hook))


async def _traffic(broker: Broker) -> None:
    """Dead letters, and a consumer that waits for them."""
    topic = "orders.dead-letters"
    async with Cluster(broker.bootstrap_servers) as cluster, Producer(cluster) as producer:
        await producer.send_and_wait(topic, b"x", partition=0)
        async with Reader(cluster) as reader:
            await reader.assign({TopicPartition(topic, 0): 0})
            async for _ in reader.messages():
                await asyncio.sleep(0.05)
                await producer.send(topic, b"x", partition=0)


def test_a_consumer_that_is_behind_and_catches_up():
    group, partition = "etl", TopicPartition("orders", 0)
    expected = {"ConsumerLagHigh", "ConsumerLagOld"}
    changes = {"alerts.ConsumerLagHigh.records": "5", "alerts.ConsumerLagOld.seconds": "0.5"}

    async def scenario(broker: Broker, hook: Webhook) -> None:
        async with (
            Cluster(broker.bootstrap_servers) as cluster,
            Producer(cluster) as producer,
            running(options(broker, hook, **changes)),
        ):
            for _ in range(10):
                end = (await producer.send_and_wait("orders", b"x", partition=0)).offset + 1
            await Groups(cluster).commit(group, {partition: 1})
            await until_heard(hook, "firing", expected)
            await Groups(cluster).commit(group, {partition: end})
            await until_heard(hook, "resolved", expected)

    with Broker(admin=True) as broker, webhook() as hook:
        played(lambda: scenario(broker, hook))


def test_a_transaction_that_hangs_and_is_aborted(monkeypatch):
    monkeypatch.setattr(state_topic, "TRANSACTION_TIMEOUT_MS", 1000)
    where = TopicPartition("orders", 0)

    async def scenario(broker: Broker, hook: Webhook) -> None:
        async with Cluster(broker.bootstrap_servers) as cluster, running(options(broker, hook)):
            await Admin(cluster).create_topic(where.topic)
            await leave_hanging(cluster, where, 4711)
            await until_heard(hook, "firing", {"TransactionHanging"})
            transactions = Transactions(cluster)
            [found] = await transactions.hanging([where], silent_since_ms=2)
            await transactions.abort_hanging(found.producer)
            await until_heard(hook, "resolved", {"TransactionHanging"})

    settings = {
        "transaction.partition.verification.enable": "false",
        "transaction.max.timeout.ms": 1000,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    }
    with Broker(settings, admin=True) as broker, webhook() as hook:
        set_transaction_version(broker, 1)
        played(lambda: scenario(broker, hook))


def test_a_certificate_that_expires_and_is_replaced(tmp_path, monkeypatch):
    """The evaluator itself connects with TLS."""
    monkeypatch.setattr(node_tls, "CHECK_SECONDS", 0.2)
    authority = CertificateAuthority()
    location = authority.issue("127.0.0.1", ends_days=13).write(tmp_path / "node.pem")
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": location}
    properties = {"security.protocol": "SSL", "ssl.ca.location": authority.write(tmp_path / "ca.pem")}

    async def scenario(broker: Broker, hook: Webhook) -> None:
        async with running(replace(options(broker, hook), properties=properties)):
            await until_heard(hook, "firing", {"CertificateExpiring"})
            authority.issue("127.0.0.1", ends_days=90).write(tmp_path / "node.pem")
            await until_heard(hook, "resolved", {"CertificateExpiring"})

    with Broker(settings, security_protocol="SSL", admin=True) as broker, webhook() as hook:
        played(lambda: scenario(broker, hook))


def test_groups_that_stop_stall_and_rewind(monkeypatch):
    """Real commits, judged by the broker: its times are a tenth of the real ones."""
    monkeypatch.setattr(verdict, "FRESH_MS", 1000)
    monkeypatch.setattr(verdict, "SILENCE_MIN_MS", 3000)
    where = TopicPartition("orders", 0)
    expected = {"ConsumerStopped", "ConsumerStalled", "ConsumerRewound"}

    async def commits(groups: Groups) -> None:
        position = 90
        while True:
            await groups.commit("stalled", {where: 10})
            await groups.commit("rewound", {where: position})
            position = max(position - 1, 1)
            await asyncio.sleep(0.5)

    async def scenario(broker: Broker, hook: Webhook) -> None:
        async with Cluster(broker.bootstrap_servers) as cluster, Producer(cluster) as producer:
            for _ in range(100):
                end = (await producer.send_and_wait(where.topic, b"x", partition=0)).offset + 1
            groups = Groups(cluster)
            await groups.commit("stopped", {where: 1})
            async with running(options(broker, hook)):
                committing = asyncio.create_task(commits(groups))
                await until_heard(hook, "firing", expected)
                committing.cancel()
                await asyncio.gather(committing, return_exceptions=True)
                about = {
                    alert["labels"]["group"]: alert["labels"]["alertname"]
                    for body in hook.bodies
                    for alert in body["alerts"]
                    if alert["labels"]["alertname"] in expected
                }
                assert about == {
                    "stopped": "ConsumerStopped",
                    "stalled": "ConsumerStalled",
                    "rewound": "ConsumerRewound",
                }
                for group in about:
                    await groups.commit(group, {where: end})
                await until_heard(hook, "resolved", expected)

    with Broker(admin=True) as broker, webhook() as hook:
        played(lambda: scenario(broker, hook))


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 MiB."""
    if (why := volumes.missing()) is not None:
        pytest.skip(why)
    with volumes.tmpfs(tmp_path / "disk", 64 << 20) as mounted:
        yield mounted


@pytest.mark.root
def test_a_disk_that_fills_up_cannot_be_written_and_is_freed(volume: Path):
    """First the trend is reported, then the space, then that nothing can be written."""
    topic, record = "orders", b"x" * (256 << 10)
    space = {"DiskSpaceLow", "DiskSpaceCritical"}

    async def scenario(broker: Broker, hook: Webhook) -> None:
        async with (
            Cluster(broker.bootstrap_servers) as cluster,
            Producer(cluster, batch_bytes=1 << 20) as producer,
            running(options(broker, hook)) as evaluator,
        ):
            await Admin(cluster).create_topic(topic)
            async with faster(evaluator, 600):
                while "DiskFullSoon" not in heard(hook, "firing"):
                    await producer.send_and_wait(topic, record, partition=0)
                    await asyncio.sleep(0.1)
            assert not heard(hook, "firing") & space, "the trend is known before it is full"
            filler = volume / "filler"
            with filler.open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(1 << 20))
            full = {*space, "LogDirectoryOffline"}
            await until_heard(hook, "firing", full)
            filler.unlink()
            await Admin(cluster).delete_topic(topic)
            await until_heard(hook, "resolved", full)
            # The trend is that of six hours: it turns once they are over.
            async with faster(evaluator, 1800):
                await until_heard(hook, "resolved", {"DiskFullSoon"})

    with (
        Broker({"log.segment.delete.delay.ms": 0}, data_dir=volume / "data", admin=True) as broker,
        webhook() as hook,
    ):
        played(lambda: scenario(broker, hook))


@pytest.mark.root
def test_a_disk_that_becomes_read_only(volume: Path):
    data = volume / "data"

    async def scenario(broker: Broker, hook: Webhook) -> None:
        async with running(options(broker, hook)) as evaluator:
            await eventually(lambda: evaluator.alerting.history.snapshot.at_ms > 0)
            # The open files of the broker would keep the file system itself from becoming read-only.
            subprocess.run(["mount", "--bind", str(data), str(data)], check=True)
            try:
                subprocess.run(["mount", "-o", "remount,bind,ro", str(data)], check=True)
                await until_heard(hook, "firing", {"LogDirectoryOffline"})
            finally:
                subprocess.run(["umount", "-l", str(data)], check=True)
            await until_heard(hook, "resolved", {"LogDirectoryOffline"})

    with Broker(data_dir=data, admin=True) as broker, webhook() as hook:
        played(lambda: scenario(broker, hook))
