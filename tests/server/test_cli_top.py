"""`runnel top` shows brokers, topics and groups."""

import io

from rich.console import Console

from runnel.client.groups import Groups
from runnel.model.ids import TopicPartition
from runnel.server.cli.top import screen
from runnel.server.cli.top_data import read
from runnel.testing import Broker


def shown(now, before) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(screen(now, before))
    return console.export_text()


def test_a_reading_and_the_rates_since_the_last_one() -> None:
    with Broker() as broker, broker.client() as client:
        client.create_topic("orders", partitions=2)
        client.send_all("orders", [(None, b"x")] * 10)
        client.run(lambda cluster: Groups(cluster).commit("[red]billing", {TopicPartition("orders", 0): 0}))
        first = client.run(read)
        client.send_all("orders", [(None, b"x")] * 30)
        second = client.run(read)
        assert second.records["orders"] == 40
        assert second.topic_rates(first)["orders"] > 0 == first.topic_rates(first)["orders"]
        text = shown(second, first)
    lag = second.groups[0].lag
    assert "orders" in text and "[red]billing" in text and str(lag) in text and "all in sync" in text
    assert "up controller" in text
