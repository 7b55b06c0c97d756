"""Alerts over the metrics of real brokers: from the condition to the webhook, and its resolution."""

import asyncio
import re
from dataclasses import replace
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
from runnel.gateway.alerts.config import parsed_config
from runnel.gateway.alerts.evaluator import EvaluatorOptions
from runnel.model.ids import TopicPartition
from runnel.observe import grafana
from runnel.observe.alerts.prometheus_rules import expression
from runnel.observe.alerts.rules import RULES
from runnel.observe.exposition import parse
from runnel.testing import Broker
from tests.client.hanging import leave_hanging, set_transaction_version
from tests.gateway.alerts.servers import Webhook, webhook
from tests.gateway.alerts.test_evaluator import eventually, played, running
from tools.certificates import CertificateAuthority

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


def options(broker: Broker, hook: Webhook, **more: str) -> EvaluatorOptions:
    settings, receivers = parsed_config(
        {
            "alerts.interval": "200ms",
            "alerts.group.wait": "0",
            "alerts.group.interval": "200ms",
            "alerts.receiver.ops.type": "webhook",
            "alerts.receiver.ops.url": hook.url,
            **{f"alerts.{rule.name}.for": "200ms" for rule in RULES},
            **more,
        }
    )
    return EvaluatorOptions(broker.bootstrap_servers, {}, settings, receivers)


def heard(hook: Webhook, status: str) -> set[str]:
    return {
        alert["labels"]["alertname"]
        for body in hook.bodies
        for alert in body["alerts"]
        if alert["status"] == status
    }


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
            await eventually(lambda: heard(hook, "firing") >= {*exceeded, "DeadLettersGrowing"}, 60)
            traffic.cancel()
            await asyncio.gather(traffic, return_exceptions=True)
        async with running(options(broker, hook)):
            await eventually(lambda: heard(hook, "resolved") >= set(exceeded), 60)

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
            await eventually(lambda: heard(hook, "firing") >= expected, 60)
            await Groups(cluster).commit(group, {partition: end})
            await eventually(lambda: heard(hook, "resolved") >= expected, 60)

    with Broker(admin=True) as broker, webhook() as hook:
        played(lambda: scenario(broker, hook))


def test_a_transaction_that_hangs_and_is_aborted(monkeypatch):
    monkeypatch.setattr(state_topic, "TRANSACTION_TIMEOUT_MS", 1000)
    where = TopicPartition("orders", 0)

    async def scenario(broker: Broker, hook: Webhook) -> None:
        async with Cluster(broker.bootstrap_servers) as cluster, running(options(broker, hook)):
            await Admin(cluster).create_topic(where.topic)
            await leave_hanging(cluster, where, 4711)
            await eventually(lambda: "TransactionHanging" in heard(hook, "firing"), 60)
            transactions = Transactions(cluster)
            [found] = await transactions.hanging([where], silent_since_ms=2)
            await transactions.abort_hanging(found.producer)
            await eventually(lambda: "TransactionHanging" in heard(hook, "resolved"), 60)

    settings = {
        "transaction.partition.verification.enable": "false",
        "transaction.max.timeout.ms": 1000,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    }
    with Broker(settings, admin=True) as broker, webhook() as hook:
        set_transaction_version(broker, 1)
        played(lambda: scenario(broker, hook))


def test_a_certificate_that_expires(tmp_path):
    """The evaluator itself connects with TLS."""
    authority = CertificateAuthority()
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("127.0.0.1").write(tmp_path / "node.pem"),
    }
    properties = {"security.protocol": "SSL", "ssl.ca.location": authority.write(tmp_path / "ca.pem")}

    async def scenario(broker: Broker, hook: Webhook) -> None:
        given = options(broker, hook, **{"alerts.CertificateExpiring.seconds": "1e12"})
        async with running(replace(given, properties=properties)):
            await eventually(lambda: "CertificateExpiring" in heard(hook, "firing"), 60)

    with Broker(settings, security_protocol="SSL", admin=True) as broker, webhook() as hook:
        played(lambda: scenario(broker, hook))


@pytest.mark.slow
def test_a_node_that_is_killed_and_returns():
    """All that follows from it is reported, and resolved when the node is back."""
    expected = {
        "BrokerDown",
        "BrokerFenced",
        "UnderReplicatedPartitions",
        "UnderMinIsrPartitions",
        "OfflinePartitions",
    }
    settings = {"default.replication.factor": 3, "min.insync.replicas": 3}

    async def scenario(cluster: Broker, hook: Webhook) -> None:
        given = options(cluster, hook, **{"alerts.ElectionSlow.seconds": "0.000001"})
        async with running(given) as evaluator:
            await eventually(lambda: len(evaluator.alerting.history.snapshot.brokers) == 3)
            await eventually(lambda: not evaluator.alerting.history.snapshot.missing)
            await asyncio.to_thread(cluster.nodes[2].kill)
            await eventually(lambda: heard(hook, "firing") >= {*expected, "ElectionSlow"}, 60)
            await asyncio.to_thread(cluster.nodes[2].start)
            await eventually(lambda: heard(hook, "resolved") >= expected, 60)

    with Broker(settings, nodes=3, admin=True) as cluster, webhook() as hook:
        with cluster.client() as client:
            client.send("orders", b"x")
            # One partition of it is only on the node that is killed.
            client.run(lambda each: Admin(each).create_topic("single", partitions=3, replication_factor=1))
        played(lambda: scenario(cluster, hook))
