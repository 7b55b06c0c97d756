"""What happens at the same time as something else."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from websockets.sync.client import connect

from runnel.client.cluster import Cluster
from runnel.client.groups import Groups
from runnel.gateway.http import principals
from runnel.gateway.http.groups import Acks
from runnel.gateway.http.message_ids import MessageId
from runnel.gateway.http.principals import Principal, Principals
from runnel.gateway.http.records import View
from runnel.gateway.http.requests import find_topic
from runnel.gateway.http.streams import feeds
from runnel.gateway.http.streams.feeds import Feed, FeedKey, Feeds
from runnel.gateway.http.streams.socket import SocketEndpoint
from runnel.gateway.http.table import ACK, PUBLISH, SUBSCRIBE
from runnel.gateway.options import GatewayOptions
from runnel.model.ids import TopicPartition
from runnel.testing import Broker
from tests.gateway.http.clients import Client


def test_acks_at_the_same_time_do_not_move_a_group_back(
    http_broker: Broker, client: Client, topic: str, group: str
) -> None:
    client.publish(topic, *({"value": str(number)} for number in range(8)))

    async def play() -> int:
        acks = Acks()
        async with Cluster(http_broker.bootstrap_servers) as cluster:
            view = await cluster.topic(topic)
            await asyncio.gather(
                *(
                    acks.acknowledge(cluster, view, [MessageId(view.topic_id, 0, offset, group)])
                    for offset in (3, 7, 5, 0)
                )
            )
            partition = TopicPartition(topic, 0)
            return (await Groups(cluster).stable_offsets(group, [partition]))[partition].offset

    assert asyncio.run(play()) == 8


def test_a_bug_in_a_message_of_a_socket_is_answered(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def published(*arguments: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("runnel.gateway.http.streams.socket.published", published)
    with connect(f"ws://{client.host}:{client.port}/topics/{topic}/subscribe") as line:
        line.send(json.dumps({"type": "publish", "record": {"value": "a"}, "id": 7}))
        answer = json.loads(line.recv(timeout=20))
    assert (answer["type"], answer["id"], answer["problem"]["status"]) == ("error", 7, 500)
    assert "a bug" not in answer["problem"]["detail"]


def test_publishes_of_a_socket_are_written_in_their_order(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata of the topic take longer for the first one than for those after it."""
    looked_up = 0

    async def slow_at_first(*arguments: Any) -> Any:
        nonlocal looked_up
        looked_up += 1
        if looked_up == 2:
            # The first time is for the socket itself.
            await asyncio.sleep(0.3)
        return await find_topic(*arguments)

    monkeypatch.setattr("runnel.gateway.http.streams.socket.find_topic", slow_at_first)
    with connect(f"ws://{client.host}:{client.port}/topics/{topic}/subscribe?credit=0") as line:
        for number in range(20):
            line.send(json.dumps({"type": "publish", "record": {"value": str(number)}, "id": number}))
        answers = [json.loads(line.recv(timeout=20)) for _ in range(20)]
    assert {answer["id"]: answer["offset"] for answer in answers} == {number: number for number in range(20)}
    stored = client.get(f"/topics/{topic}/subscribe").json["messages"]
    assert [message["value"] for message in stored] == [str(number) for number in range(20)]


class Endless:
    """The conversation of a WebSocket; it is written without an end, and read so if `is_read`."""

    is_read = True
    ended: list[str]

    def __init__(self, *arguments: Any) -> None:
        pass

    async def read(self) -> None:
        if self.is_read:
            await self._wait("reading")

    async def write(self, parts: AsyncGenerator[Any]) -> None:
        await self._wait("writing")

    async def end(self, writing: "asyncio.Task[None]") -> None:
        self.ended.append("closed")

    async def _wait(self, name: str) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.05)
            self.ended.append(name)


async def nothing(*arguments: Any) -> None:
    pass


async def empty_parts(*arguments: Any) -> AsyncGenerator[Any]:
    yield []
    yield []


REPLACED = {
    "Conversation": Endless,
    "follow": empty_parts,
    "subscription": nothing,
    "find_topic": nothing,
    "check_room": lambda *arguments: None,
}


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_nothing_of_a_socket_goes_on_after_it(is_cancelled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, replaced in REPLACED.items():
        monkeypatch.setattr(f"runnel.gateway.http.streams.socket.{name}", replaced)
    monkeypatch.setattr(Endless, "is_read", is_cancelled)
    monkeypatch.setattr(Endless, "ended", [], raising=False)

    async def play() -> None:
        api: Any = SimpleNamespace(check_may_serve=lambda operation: None, principals=None)
        url = SimpleNamespace(query="")
        line: Any = SimpleNamespace(url=url, path_params={"topic": "t"}, accept=nothing)
        principal: Any = SimpleNamespace(cluster=None, feeds=SimpleNamespace(streams=0))
        endpoint = SocketEndpoint(api, SUBSCRIBE, PUBLISH, ACK)
        serving = asyncio.create_task(endpoint._serve(line, principal))
        while principal.feeds.streams == 0:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        if is_cancelled:
            serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        assert serving.cancelled() == is_cancelled and principal.feeds.streams == 0
        # Before the loop ends, which would cancel what is left.
        assert sorted(Endless.ended) == (["reading", "writing"] if is_cancelled else ["closed", "writing"])

    asyncio.run(play())


class ClosedMeanwhile(Feed):
    """A feed; something else happens while it is closed."""

    meanwhile: Callable[[], None]

    async def close(self) -> None:
        self.meanwhile()


def test_a_feed_that_was_replaced_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "FEED_IDLE_S", 0.0)

    async def play() -> None:
        cluster = Cluster("127.0.0.1:1")
        all_of_them = Feeds(cluster)
        known = all_of_them._feeds
        one, two = [FeedKey(name, None, 0, View(b"")) for name in ("a", "b")]
        first, second, other = (
            ClosedMeanwhile(cluster, one, []),
            Feed(cluster, two, []),
            Feed(cluster, two, []),
        )
        other.followers = 1
        first.is_stopped = second.is_stopped = True
        first.meanwhile = lambda: known.update({two: other})
        known.update({one: first, two: second})
        reaping = asyncio.create_task(all_of_them._reap())
        async with asyncio.timeout(20):
            while one in known:
                await asyncio.sleep(0)
        assert known == {two: other}
        reaping.cancel()

    asyncio.run(play())


class ForgottenMeanwhile(Principal):
    """A principal; another one is forgotten while it is closed."""

    meanwhile: Callable[[], None]

    async def close(self) -> None:
        self.meanwhile()
        await super().close()


def test_principals_are_closed_when_others_are_forgotten_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(principals, "REAP_INTERVAL_S", 0.0)
    monkeypatch.setattr(principals, "PRINCIPAL_IDLE_S", -1.0)

    async def play() -> None:
        options = GatewayOptions("127.0.0.1:1")
        all_of_them = Principals(options)
        known = all_of_them._known
        first = ForgottenMeanwhile(options, {})
        first.meanwhile = lambda: known.__delitem__(b"2")
        known.update({b"1": first, b"2": Principal(options, {})})
        reaping = asyncio.create_task(all_of_them._reap())
        async with asyncio.timeout(20):
            while known:
                await asyncio.sleep(0)
            # It goes on.
            known[b"3"] = Principal(options, {})
            while known and not reaping.done():
                await asyncio.sleep(0)
        assert not known and not reaping.done()
        reaping.cancel()

    asyncio.run(play())
