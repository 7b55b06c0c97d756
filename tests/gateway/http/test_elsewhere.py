"""Topics that are created again, get partitions, or are read, by others than this gateway."""

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from websockets.sync.client import connect

from runnel.client.admin import Admin
from runnel.client.chunk import Chunk, Message
from runnel.client.groups import Groups
from runnel.client.offsets import end_offsets
from runnel.client.reader import Reader
from runnel.gateway.http.polling import Subscription, fetch
from runnel.model.ids import TopicPartition
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


def ahead(cursor: str, offset: int) -> str:
    """The cursor of a gateway that has read more of partition 0."""
    return cursor.rpartition("-")[0] + f"-{offset}"


def test_a_stream_that_is_ahead_of_the_feed_sees_nothing_twice(client: Client, topic: str) -> None:
    client.publish(topic, *({"value": str(number)} for number in range(3)))
    path = f"/topics/{topic}/subscribe"
    cursor = ahead(client.get(path).json["next"], 5)
    with client.events(path, Last_Event_ID=cursor) as events:
        client.publish(topic, *({"value": str(number)} for number in range(3, 7)))
        assert [message["value"] for message in events.take(2)] == ["5", "6"]


def test_a_stream_after_the_end_of_a_truncated_log_is_moved_back(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runnel.gateway.http.streams.following.BEHIND_S", 0.05)
    client.publish(topic, *({"value": str(number)} for number in range(3)))
    path = f"/topics/{topic}/subscribe"
    cursor = ahead(client.get(path).json["next"], 5)
    with client.events(path, Last_Event_ID=cursor) as events:
        assert events.next() == ("gap", {"partition": 0, "from": 5, "to": 3})
        client.publish(topic, {"value": "3"})
        assert [message["value"] for message in events.take(1)] == ["3"]


class LateReader(Reader):
    """Reads, and does not say so for a while."""

    is_late = True

    async def next_chunk(self) -> Chunk | None:
        chunk = await super().next_chunk()
        while LateReader.is_late:
            await asyncio.sleep(0.01)
        return chunk


def test_a_stream_waits_for_a_feed_that_is_late(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has what the stream has read elsewhere: nothing comes twice, and there is no gap."""
    monkeypatch.setattr("runnel.gateway.http.streams.following.BEHIND_S", 0.05)
    monkeypatch.setattr("runnel.gateway.http.streams.feeds.Reader", LateReader)
    monkeypatch.setattr(LateReader, "is_late", True)
    client.publish(topic, *({"value": str(number)} for number in range(3)))
    path = f"/topics/{topic}/subscribe"
    with client.events(path) as first:
        while first.response.readline() != b": still here\n":
            # The feed has not begun.
            pass
        client.publish(topic, *({"value": str(number)} for number in range(3, 5)))
        cursor = client.get(path).json["next"]
        with client.events(path, Last_Event_ID=cursor) as events:
            # Long enough for several looks at the feed.
            time.sleep(0.5)
            client.publish(topic, {"value": "5"})
            monkeypatch.setattr(LateReader, "is_late", False)
            assert events.next()[1]["value"] == "5"


def commit_elsewhere(broker: Broker, group: str, topic: str, offset: int) -> None:
    with broker.client() as kafka:
        kafka.run(lambda cluster: Groups(cluster).commit(group, {TopicPartition(topic, 0): offset}))


def test_a_group_after_the_end_of_a_truncated_log_begins_again(
    http_broker: Broker, client: Client, topic: str, group: str
) -> None:
    client.publish(topic, *({"value": str(number)} for number in range(3)))
    commit_elsewhere(http_broker, group, topic, 100)
    path = f"/topics/{topic}/subscribe?group={group}"
    found = client.get(f"{path}&max=10").json
    assert [message["value"] for message in found["messages"]] == ["0", "1", "2"]
    assert found["gaps"] == [{"partition": 0, "from": 100, "to": 0}]
    # What is committed is no position that an ack could be late for.
    acked = client.post(f"/topics/{topic}/ack", {"messageId": found["messages"][0]["messageId"]})
    assert acked.json == {"committed": [{"partition": 0, "offset": 1}]}
    assert client.get(path).json["value"] == "1"


def test_a_stream_of_a_group_after_the_end_of_a_truncated_log_begins_again(
    http_broker: Broker, client: Client, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runnel.gateway.http.streams.following.BEHIND_S", 0.05)
    client.publish(topic, *({"value": str(number)} for number in range(3)))
    commit_elsewhere(http_broker, group, topic, 100)
    with client.events(f"/topics/{topic}/subscribe?group={group}") as events:
        assert events.next() == ("gap", {"partition": 0, "from": 100, "to": 0})
        assert [message["value"] for message in events.take(3)] == ["0", "1", "2"]


def test_streams_resume_with_partitions_that_were_added(
    http_broker: Broker, client: Client, topic: str
) -> None:
    path = f"/topics/{topic}/subscribe"
    client.publish(topic, {"value": "a"})
    with client.events(f"{path}?offset=0") as before:
        assert before.take(1)[0]["value"] == "a"
        add_partitions(http_broker, topic, 2)
        with client.events(path, Last_Event_ID=before.last_id) as events:
            client.publish(topic, {"value": "b", "partition": 1})
            assert events.take(1)[0]["value"] == "b"
        # Those that are open go on with them.
        assert before.take(1)[0]["value"] == "b" and before.last_id == events.last_id


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runnel.gateway.http.streams.feeds.FEED_METADATA_S", 0.1)


@pytest.mark.usefixtures("quick")
def test_open_streams_notice_partitions_that_are_added(
    http_broker: Broker, client: Client, topic: str, group: str
) -> None:
    path = f"/topics/{topic}/subscribe"
    client.publish(topic, {"value": "a", "partition": 0})
    with (
        client.events(f"{path}?offset=0") as events,
        client.events(f"{path}?group={group}") as of_group,
        client.events(f"{path}?offset=0&partition=0") as of_partition,
        connect(f"ws://{client.host}:{client.port}{path}?offset=0") as line,
    ):
        assert [each.take(1)[0]["value"] for each in (events, of_group, of_partition)] == ["a", "a", "a"]
        assert json.loads(line.recv(timeout=20))["value"] == "a"
        add_partitions(http_broker, topic, 3)
        # By others, so that the gateway hears nothing of it.
        with http_broker.client() as kafka:
            for value, partition in ((b"b", 2), (b"c", 2), (b"d", 0)):
                kafka.send(topic, value, partition=partition)
        for each in (events, of_group):
            assert sorted(message["value"] for message in each.take(3)) == ["b", "c", "d"]
        frames = [json.loads(line.recv(timeout=20)) for _ in range(3)]
        assert sorted(frame["value"] for frame in frames) == ["b", "c", "d"]
        assert of_partition.take(1)[0]["value"] == "d"
    # The last cursor is of all partitions.
    client.publish(topic, *({"value": f"e{number}", "partition": number} for number in range(3)))
    with client.events(path, Last_Event_ID=events.last_id) as events:
        assert sorted(message["value"] for message in events.take(3)) == ["e0", "e1", "e2"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("records", [5, 7, 2])
def test_streams_of_a_topic_that_is_created_again_end(
    http_broker: Broker, client: Client, topic: str, records: int
) -> None:
    """Whether its log reaches the offsets of the old one, or not."""
    path = f"/topics/{topic}/subscribe"
    client.publish(topic, *({"value": f"old {number}"} for number in range(5)))
    with (
        client.events(f"{path}?offset=0") as events,
        connect(f"ws://{client.host}:{client.port}{path}?offset=0") as line,
    ):
        assert [message["value"] for message in events.take(5)] == [f"old {number}" for number in range(5)]
        frames = [json.loads(line.recv(timeout=20)) for _ in range(5)]
        create_again(http_broker, topic, records)
        name, problem = events.next()
        assert (name, problem["status"]) == ("error", 409) and "created again" in problem["detail"]
        assert events.response.read() == b""
        frame = json.loads(line.recv(timeout=20))
        assert (frame["type"], frame["problem"]["status"]) == ("error", 409)
    assert client.get(path, Accept="text/event-stream", Last_Event_ID=events.last_id).status == 409
    assert client.get(f"{path}?cursor={frames[-1]['cursor']}").status == 409
    with client.events(f"{path}?offset=earliest") as events:
        seen = [message["value"] for message in events.take(records)]
    assert seen == [f"new {number}" for number in range(records)]


def test_a_stream_that_catches_up_reads_nothing_of_a_topic_that_is_created_again(
    http_broker: Broker, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the feed has noticed."""
    monkeypatch.setattr("runnel.gateway.http.streams.feeds.FEED_METADATA_S", 1.0)
    is_new = False

    async def fetch_later(found: Subscription, *arguments: Any) -> Any:
        nonlocal is_new
        if found.view.name == topic and not is_new:
            is_new = True
            await asyncio.to_thread(create_again, http_broker, topic, 7)
        return await fetch(found, *arguments)

    client.publish(topic, *({"value": f"old {number}"} for number in range(5)))
    monkeypatch.setattr("runnel.gateway.http.streams.following.fetch", fetch_later)
    with client.events(f"/topics/{topic}/subscribe?offset=0") as events:
        name, problem = events.next()
    assert is_new and (name, problem["status"]) == ("error", 409), problem


@pytest.mark.usefixtures("quick")
def test_a_poll_of_a_topic_that_is_created_again_ends(
    http_broker: Broker, client: Client, topic: str
) -> None:
    client.publish(topic, {"value": "old"})
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(client.get, f"/topics/{topic}/subscribe?offset=1&wait=20000")
        time.sleep(0.5)
        create_again(http_broker, topic, 1)
        assert waiting.result(30).status == 409


def test_a_stream_ends_when_its_next_record_is_not_in_the_log(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an unclean election."""

    async def beyond(*arguments: Any, **named: Any) -> dict[TopicPartition, int]:
        return {partition: end + 100 for partition, end in (await end_offsets(*arguments, **named)).items()}

    monkeypatch.setattr("runnel.gateway.http.streams.feeds.end_offsets", beyond)
    with client.events(f"/topics/{topic}/subscribe") as events:
        name, problem = events.next()
        assert name == "error" and problem["status"] == 503 and "OFFSET_OUT_OF_RANGE" in problem["detail"]


def test_a_poll_waits_for_a_record_that_it_cannot_read(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []

    async def read(found: Subscription, limit: int) -> list[Message]:
        reads.append(limit)
        return []

    path = f"/topics/{topic}/subscribe?offset=0"
    with client.events(path) as events:
        client.publish(topic, {"value": "a"})
        events.take(1)
        monkeypatch.setattr("runnel.gateway.http.polling.read", read)
        assert client.get(f"{path}&wait=200").json["messages"] == []
    assert len(reads) == 2
