"""Topics that are created again, get partitions, or are read, by others than this gateway."""

from runnel.client.admin import Admin
from runnel.testing import Broker
from tests.gateway.http.clients import Client


def create_again(broker: Broker, topic: str, records: int) -> None:
    """Delete a topic and create it, with as many records."""
    with broker.client() as kafka:
        kafka.delete_topic(topic)
        kafka.create_topic(topic)
        kafka.send_all(topic, [(None, b"new %d" % number) for number in range(records)])


def add_partitions(broker: Broker, topic: str, total: int) -> None:
    with broker.client() as kafka:
        kafka.run(lambda cluster: Admin(cluster).add_partitions(topic, total))


def test_what_was_read_before_a_topic_was_created_again_is_refused(
    http_broker: Broker, client: Client, topic: str, group: str
) -> None:
    client.publish(topic, *({"value": f"old {number}"} for number in range(3)))
    path = f"/topics/{topic}/subscribe"
    messages = client.get(f"{path}?group={group}&max=3").json
    create_again(http_broker, topic, 5)
    answer = client.post(f"/topics/{topic}/ack", {"messageId": messages["messages"][2]["messageId"]})
    assert answer.status == 409
    assert client.get(f"{path}?group={group}").json["value"] == "new 0"
    assert client.get(f"{path}?cursor={messages['next']}").status == 409
    assert client.get(path, Accept="text/event-stream", Last_Event_ID=messages["next"]).status == 409


def test_partitions_that_were_added_elsewhere(http_broker: Broker, client: Client, topic: str) -> None:
    path = f"/topics/{topic}/subscribe"
    assert client.get(path).json["messages"] == []
    add_partitions(http_broker, topic, 2)
    assert client.get(f"{path}?partition=1").json["messages"] == []
    add_partitions(http_broker, topic, 3)
    [published] = client.publish(topic, {"value": "a", "partition": 2})
    assert (published["partition"], published["offset"]) == (2, 0)
    assert client.get(f"{path}?partition=3").status == 404
