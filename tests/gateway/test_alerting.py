"""A gateway evaluates alerts of a real cluster, in which nodes fail and groups fall behind."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from runnel.client.admin import Admin
from runnel.testing import Broker, LocalGateway
from tests.gateway.alerts.servers import Webhook, webhook

FAST = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "100"}
RULES = """
alerts.interval=1s
alerts.group.wait=0s
alerts.group.interval=1s
alerts.receiver.hook.type=webhook
alerts.receiver.hook.url={url}
alerts.BrokerDown.for=0s
alerts.UnderReplicatedPartitions.for=0s
alerts.DiskSpaceLow.enabled=false
alerts.DiskSpaceCritical.enabled=false
alerts.LoopDelayHigh.enabled=false
"""


@contextmanager
def evaluated(broker: Broker, folder: Path, more: str = "") -> Iterator[Webhook]:
    """A gateway that evaluates the rules every second, and what it posts."""
    with webhook() as hook:
        config = folder / "alerts.properties"
        config.write_text(RULES.format(url=hook.url) + more)
        gateway = LocalGateway(broker.bootstrap_servers, "PLAINTEXT", alerts=str(config))
        try:
            yield hook
        finally:
            gateway.close()


def outcomes(hook: Webhook, name: str) -> list[str]:
    """The states of an alert, in the order of the notifications."""
    return [
        alert["status"]
        for body in hook.bodies
        for alert in body["alerts"]
        if alert["labels"]["alertname"] == name
    ]


def wait_for(hook: Webhook, name: str, status: str) -> None:
    with hook.arrived:
        found: Callable[[], bool] = lambda: status in outcomes(hook, name)[-1:]  # noqa: E731
        assert hook.arrived.wait_for(found, 60), (name, status, hook.bodies)


def test_a_node_that_fails_and_returns(tmp_path: Path) -> None:
    with Broker(FAST, nodes=3, admin=True) as cluster, evaluated(cluster, tmp_path) as hook:
        with cluster.client() as client:
            client.run(lambda connected: Admin(connected).create_topic("orders", partitions=6))
            client.send_all("orders", [(b"%d" % number, b"x") for number in range(100)])
        failed = cluster.nodes[-1]
        failed.kill()
        wait_for(hook, "UnderReplicatedPartitions", "firing")
        wait_for(hook, "BrokerDown", "firing")
        failed.start()
        wait_for(hook, "UnderReplicatedPartitions", "resolved")
        wait_for(hook, "BrokerDown", "resolved")


def test_a_group_that_stops_and_a_disk_that_is_full(tmp_path: Path) -> None:
    settings = {"num.partitions": 1, "offsets.topic.num.partitions": 1}
    more = "\n".join(
        (
            "alerts.ConsumerLagHigh.records=5",
            "alerts.ConsumerLagHigh.for=0s",
            "alerts.DiskSpaceLow.enabled=true",
            "alerts.DiskSpaceLow.used=0.000001",
            "alerts.DiskSpaceLow.for=0s",
        )
    )
    with Broker(settings, admin=True) as broker, evaluated(broker, tmp_path, more) as hook:
        with broker.client() as client:
            client.send_all("orders", [(None, b"x") for _ in range(20)])
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "billing"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        wait_for(hook, "ConsumerLagHigh", "firing")
        wait_for(hook, "DiskSpaceLow", "firing")
        consumer.commit(offsets=[TopicPartition("orders", 0, 20)], asynchronous=False)
        wait_for(hook, "ConsumerLagHigh", "resolved")
        consumer.close()
    # Every notification names its alerts.
    assert all(alert["labels"]["alertname"] for body in hook.bodies for alert in body["alerts"])
