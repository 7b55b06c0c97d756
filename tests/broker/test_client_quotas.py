"""Client quotas in force: throttle times, muted connections, empty fetches, refused changes of metadata."""

import asyncio
from heapq import heapify, heapreplace
from pathlib import Path
from typing import Any

import pytest

from runnel.broker.runtime.client_quotas import ClientQuotas
from runnel.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from runnel.messages.api_versions import ApiVersionsRequest
from runnel.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from runnel.messages.create_topics import CreatableTopic, CreateTopicsRequest
from runnel.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from runnel.messages.metadata import MetadataRequest, MetadataRequestTopic
from runnel.model.errors import ErrorCode
from runnel.ports.service import Session
from runnel.security.principal import Principal
from runnel.wire import encode
from runnel.wire.frame import request_frame
from tests.broker.requests import batch, fetch_from, only, produce_to, values
from tests.broker.test_forwarding import Cluster, in_cluster
from tests.broker.world import BrokerWorld

USER, CLIENT = ("user", "ANONYMOUS"), ("client-id", "test")
ANY_USER, ANY_CLIENT = ("user", None), ("client-id", None)
REFUSED = ErrorCode.THROTTLING_QUOTA_EXCEEDED.code


class ManualClock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    def seconds(self) -> float:
        return self.ms / 1000


class QuotaWorld:
    """A broker whose quotas have a clock of their own, and connections that are not muted for long."""

    def __init__(self, world: BrokerWorld) -> None:
        self.world, self.broker = world, world.broker
        self.clock = ManualClock()
        real, self.broker.clock = self.broker.clock, self.clock
        self.quotas = ClientQuotas(self.broker)
        self.broker.clock = real
        self.broker.gates.quotas = self.quotas
        self.broker.metadata.on_quotas_changed = self.quotas.changed
        self.quotas.changed()

    async def limit(self, *entity: tuple[str, str | None], remove: bool = False, **rates: float) -> None:
        await alter(self.world, list(entity), rates, remove)

    def advance(self, seconds: float) -> None:
        self.clock.ms += round(seconds * 1000)

    def session(self, user: str = "ANONYMOUS", client_id: str | None = "test", **options: Any) -> Session:
        return Session("127.0.0.1", 1, "PLAINTEXT", 1, Principal("User", user), client_id, **options)


async def alter(
    world: BrokerWorld, entity: list[tuple[str, str | None]], rates: dict[str, float], remove: bool = False
) -> None:
    client = await world.connect()
    ops = [OpData(key, value, remove) for key, value in rates.items()]
    entry = EntryData([EntityData(*part) for part in entity], ops)
    response = await client.ask(AlterClientQuotasRequest([entry]), 1, "administrator")
    assert response.entries[0].error_code == 0, response.entries[0].error_message


@pytest.fixture
def quota_world(tell, monkeypatch):
    """Run a scenario with manual time; throttled connections continue at once."""

    def run(scenario, *, mutes: bool = False, settings: dict[str, str] | None = None) -> None:
        async def wrapped(world: BrokerWorld) -> None:
            await world.create("events", 2)
            if not mutes:
                patched = "runnel.net.connection.Connection._mute"
                monkeypatch.setattr(patched, lambda connection: setattr(connection.session, "throttle_ms", 0))
            await scenario(QuotaWorld(world))

        tell(wrapped, settings)

    return run


def size_of(request: Any, version: int) -> int:
    """The request as it is charged: without its length."""
    return len(b"".join(request_frame(request, version, 1, "test"))) - 4


def test_produce_is_charged_by_the_bytes_of_its_requests(quota_world):
    async def scenario(quotas: QuotaWorld) -> None:
        await quotas.limit(CLIENT, producer_byte_rate=100)
        client = await quotas.world.connect()
        request = produce_to("events", (0, batch(bytes(400))))
        size_bytes = size_of(request, 9)
        assert 400 < size_bytes < 600
        assert (await client.ask(request, 9)).throttle_time_ms == 0
        # 1,000 bytes may come at once; then 10 ms for each byte.
        expected = round((2 * size_bytes - 1000) * 10) if 2 * size_bytes > 1000 else 0
        assert (await client.ask(request, 9)).throttle_time_ms == expected
        response = await client.ask(request, 9)
        assert response.throttle_time_ms == (3 * size_bytes - 1000) * 10
        assert only(response).error_code == 0, "it is stored nevertheless"
        quotas.advance(11)
        assert (await client.ask(request, 9)).throttle_time_ms == 0
        other = await quotas.world.connect()
        assert (await other.ask(ApiVersionsRequest(), 3)).throttle_time_ms == 0

    quota_world(scenario)


def test_clients_that_wait_as_they_are_told_have_their_rate(quota_world):
    """Minutes of a producer and a consumer that do nothing else, with requests of several sizes."""

    async def scenario(quotas: QuotaWorld) -> None:
        rate, seconds = 10_000, 200
        await quotas.limit(CLIENT, producer_byte_rate=rate, consumer_byte_rate=rate)
        client = await quotas.world.connect()
        for is_fetch in (False, True):
            used, begun_ms, number = 0, quotas.clock.ms, 0
            while quotas.clock.ms < begun_ms + seconds * 1000:
                number += 1
                if is_fetch:
                    request: Any = fetch_from("events", (0, 0), partition_max_bytes=number % 7 * 1_000)
                    response = await client.ask(request, 12)
                    used += sum(map(len, encode(response, 12))) if response.responses else 0
                else:
                    request = produce_to("events", (0, batch(bytes(number % 7 * 1_000))))
                    response = await client.ask(request, 9)
                    used += size_of(request, 9)
                quotas.advance(response.throttle_time_ms / 1000)
                quotas.clock.ms += 1
            # The burst at first included.
            assert used / seconds == pytest.approx(rate, rel=0.1), is_fetch
            quotas.advance(20)

    quota_world(scenario)


def test_a_throttled_connection_is_muted_with_what_it_has_sent(quota_world):
    async def scenario(quotas: QuotaWorld) -> None:
        request = produce_to("events", (0, batch(bytes(1000))))
        size_bytes = size_of(request, 9)
        # A throttle time of about half a second.
        await quotas.limit(CLIENT, producer_byte_rate=size_bytes * 10 // 105)
        client = await quotas.world.connect()
        for _ in range(3):
            client.send(request, 9)
        first = await client.receive()
        assert 400 <= first.throttle_time_ms <= 600
        log = quotas.broker.partition("events", 0).log
        assert log.end_offset == 1, "frames that were received with it wait"
        other = await quotas.world.connect()
        await other.ask(produce_to("events", (1, batch(b"x"))), 9, "other")
        assert log.end_offset == 1
        quotas.advance(60)
        assert (await client.receive()).throttle_time_ms == first.throttle_time_ms
        assert log.end_offset == 2

    quota_world(scenario, mutes=True)


def test_a_fetch_above_the_quota_is_answered_without_records(quota_world):
    async def scenario(quotas: QuotaWorld) -> None:
        client = await quotas.world.connect()
        for number in range(6):
            await client.ask(produce_to("events", (0, batch(bytes([number]) * 400))), 9)
        await quotas.limit(USER, consumer_byte_rate=200)
        request = fetch_from("events", (0, 0), partition_max_bytes=500)
        for _ in range(3):
            response = await client.ask(request, 12)
            assert response.throttle_time_ms == 0 and len(values(only(response).records)) == 1
        used = sum(map(len, encode(response, 12))) * 3
        throttled = await client.ask(request, 12)
        assert throttled.responses == [] and throttled.error_code == 0
        assert throttled.throttle_time_ms == round((used / 3 * 4 - 2000) * 5)
        again = await client.ask(request, 12)
        assert again.throttle_time_ms == throttled.throttle_time_ms, "what was not sent is not charged"
        quotas.advance(11)
        assert only(await client.ask(request, 12)).records

    quota_world(scenario)


def test_a_fetch_is_cut_to_what_can_be_within_the_quota(quota_world):
    async def scenario(quotas: QuotaWorld) -> None:
        client = await quotas.world.connect()
        for number in range(10):
            await client.ask(produce_to("events", (0, batch(bytes([number]) * 400))), 9)
        await quotas.limit(CLIENT, consumer_byte_rate=120)
        response = await client.ask(fetch_from("events", (0, 0)), 12)
        assert response.throttle_time_ms == 0
        assert [value[0] for value in values(only(response).records)] == [0, 1]

    quota_world(scenario)


def test_fetch_sessions_survive_a_throttled_response(quota_world):
    async def scenario(quotas: QuotaWorld) -> None:
        client = await quotas.world.connect()
        await client.ask(produce_to("events", (0, batch(bytes(400)))), 9)
        await quotas.limit(CLIENT, consumer_byte_rate=60)
        sessions = quotas.broker.fetch_sessions
        assert only(await client.ask(fetch_from("events", (0, 0), session_epoch=0), 12)).records
        count = len(sessions)
        throttled = await client.ask(fetch_from("events", (0, 0), session_epoch=0), 12)
        assert throttled.throttle_time_ms > 0
        assert (throttled.session_id, throttled.responses, len(sessions)) == (0, [], count)
        quotas.advance(11)
        response = await client.ask(fetch_from("events", (0, 0), session_epoch=0), 12)
        session_id = response.session_id
        assert session_id and only(response).records
        incremental = fetch_from("events", (0, 0), session_id=session_id, session_epoch=1)
        throttled = await client.ask(incremental, 12)
        assert throttled.throttle_time_ms > 0
        assert (throttled.session_id, throttled.responses) == (session_id, [])
        quotas.advance(11)
        incremental.session_epoch = 2
        assert only(await client.ask(incremental, 12)).records

    quota_world(scenario)


def test_a_long_poll_that_exceeds_the_quota_mutes_its_connection(quota_world):
    async def scenario(quotas: QuotaWorld) -> None:
        await quotas.limit(CLIENT, consumer_byte_rate=20)
        consumer, producer = await quotas.world.connect(), await quotas.world.connect()
        consumer.send(fetch_from("events", (0, 0), wait_ms=20_000), 12)
        await until(lambda: quotas.broker.waiting.polls)
        connection = next(
            each for each in quotas.world.listener.connections if each.session in quotas.broker.waiting.polls
        )
        await producer.ask(produce_to("events", (0, batch(bytes(400)))), 9, "other")
        response = await consumer.receive()
        assert response.responses == [] and response.throttle_time_ms > 0
        assert connection._mute_timer is not None

    quota_world(scenario, mutes=True)


async def until(condition) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def create(*topics: tuple[str, int]) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name, count, 1) for name, count in topics])


def test_changes_of_metadata_are_refused_above_the_quota(quota_world):
    async def scenario(quotas: QuotaWorld) -> None:
        await quotas.limit(USER, controller_mutation_rate=1)
        client = await quotas.world.connect()
        # A bucket of 11, which may be overdrawn once.
        response = await client.ask(create(("a", 10), ("b", 5), ("c", 1)), 7)
        assert [topic.error_code for topic in response.topics] == [0, 0, REFUSED]
        assert response.throttle_time_ms == 4000
        added = await client.ask(CreatePartitionsRequest([CreatePartitionsTopic("b", 6, None)]), 3)
        assert (added.results[0].error_code, added.throttle_time_ms) == (REFUSED, 4000)
        deleted = await client.ask(DeleteTopicsRequest([DeleteTopicState("b")]), 6)
        assert (deleted.responses[0].error_code, deleted.throttle_time_ms) == (REFUSED, 4000)
        quotas.advance(4)
        added = await client.ask(CreatePartitionsRequest([CreatePartitionsTopic("b", 8, None)]), 3)
        assert (added.results[0].error_code, added.throttle_time_ms) == (0, 0)
        quotas.advance(2)
        deleted = await client.ask(DeleteTopicsRequest([DeleteTopicState("b")]), 6)
        assert deleted.responses[0].error_code == REFUSED
        quotas.advance(1)
        deleted = await client.ask(DeleteTopicsRequest([DeleteTopicState("b")]), 6)
        assert deleted.responses[0].error_code == 0
        refused = await client.ask(create(("d", 1)), 7)
        assert refused.throttle_time_ms == 8000

    quota_world(scenario)


def test_clients_that_do_not_know_the_error_are_only_throttled(quota_world):
    async def scenario(quotas: QuotaWorld) -> None:
        await quotas.limit(USER, controller_mutation_rate=1)
        client = await quotas.world.connect()
        response = await client.ask(create(("a", 12)), 5)
        assert (response.topics[0].error_code, response.throttle_time_ms) == (0, 1000)
        added = await client.ask(CreatePartitionsRequest([CreatePartitionsTopic("a", 13, None)]), 2)
        assert (added.results[0].error_code, added.throttle_time_ms) == (0, 2000)
        automatic = await client.ask(MetadataRequest([MetadataRequestTopic(name="b")], True), 12)
        assert (automatic.topics[0].error_code, automatic.throttle_time_ms) == (0, 3000)
        deleted = await client.ask(DeleteTopicsRequest([], ["a"]), 4)
        assert (deleted.responses[0].error_code, deleted.throttle_time_ms) == (0, 16_000)

    quota_world(scenario)


def test_a_forwarded_change_is_charged_by_the_controller_and_throttled_where_the_client_is(tmp_path: Path):
    async def scenario(cluster: Cluster) -> None:
        await alter(cluster.controller, [USER], {"controller_mutation_rate": 2})
        client = await cluster.other.connect()
        response = await client.ask(create(("a", 23), ("b", 1)), 7)
        assert [topic.error_code for topic in response.topics] == [0, REFUSED]
        assert 0 < response.throttle_time_ms <= 500
        (muted,) = [each for each in cluster.other.listener.connections if each._mute_timer is not None]
        await until(lambda: muted._mute_timer is None)

    in_cluster(tmp_path, scenario)


def test_time_is_charged_up_to_a_second(quota_world):
    async def scenario(quotas: QuotaWorld) -> None:
        await quotas.limit(ANY_USER, request_percentage=50)
        session = quotas.session()
        assert quotas.quotas.limits(session)

        def throttle_ms(is_exempt: bool = False) -> int:
            return quotas.quotas.throttle_ms(session, 3, 100, is_exempt=is_exempt)

        assert session.meter is not None
        session.meter(5.0)  # half of the loop for 10 seconds
        assert throttle_ms() == 0
        session.meter(0.1)
        assert throttle_ms() == 200
        session.meter(5.0)
        assert throttle_ms() == 1000, "at most one window"
        assert throttle_ms(is_exempt=True) == 0
        assert quotas.quotas.throttle_ms(quotas.session("bob"), 3, 100, is_exempt=False) == 0

    quota_world(scenario)


def test_the_time_of_requests_and_responses_is_measured(quota_world):
    async def scenario(quotas: QuotaWorld) -> None:
        await quotas.limit(CLIENT, request_percentage=0.0001)
        client = await quotas.world.connect()
        first = await client.ask(MetadataRequest([], False), 12)
        assert first.throttle_time_ms == 0
        assert 0 < (await client.ask(MetadataRequest([], False), 12)).throttle_time_ms <= 1000
        fetched = await client.ask(fetch_from("events", (0, 0)), 12)
        assert fetched.throttle_time_ms > 0 and fetched.responses == []
        client.send(produce_to("events", (0, batch(b"x")), acks=0), 9)
        client.sent.clear()
        await until(lambda: quotas.broker.partition("events", 0).log.end_offset)
        other = await quotas.world.connect()
        assert (await other.ask(MetadataRequest([], False), 12, "other")).throttle_time_ms == 0

    quota_world(scenario)


def test_the_time_of_receiving_and_serving_is_charged_once(quota_world):
    async def scenario(quotas: QuotaWorld) -> None:
        await quotas.limit(CLIENT, request_percentage=50)
        client = await quotas.world.connect()
        await client.ask(MetadataRequest([], False), 12)
        (connection,) = [each for each in quotas.world.listener.connections if each.session.meter is not None]
        charged: list[float] = []
        connection.session.meter = charged.append
        frame = b"".join(request_frame(produce_to("events", (0, batch(bytes(300_000)))), 9, 1, "test"))
        client.writer.write(frame[:100_000])
        await until(lambda: connection.is_mid_request)
        client.writer.write(frame[100_000:200_000])
        await until(lambda: charged)
        assert quotas.broker.partition("events", 0).log.end_offset == 0, "a part of a request is charged, too"
        client.writer.write(frame[200_000:])
        await client.receive_frame()
        charged.clear()
        began = asyncio.get_running_loop().time()
        for _ in range(100):
            await client.ask(MetadataRequest([], False), 12)
        assert 0 < sum(charged) <= asyncio.get_running_loop().time() - began
        charged.clear()
        client.send(produce_to("events", (0, batch(b"x")), acks=0), 9)
        client.sent.clear()
        await until(lambda: quotas.broker.partition("events", 0).log.end_offset == 2)
        assert charged == [], "exempt"

    quota_world(scenario)


def test_changes_take_effect_at_once_and_keep_what_was_used(quota_world):
    async def scenario(quotas: QuotaWorld) -> None:
        client = await quotas.world.connect()
        request = produce_to("events", (0, batch(bytes(1000))))
        await quotas.limit(CLIENT, producer_byte_rate=1000)
        for _ in range(5):
            assert (await client.ask(request, 9)).throttle_time_ms == 0
        await quotas.limit(CLIENT, producer_byte_rate=100)
        assert (await client.ask(request, 9)).throttle_time_ms > 50_000
        await quotas.limit(CLIENT, producer_byte_rate=100_000)
        assert (await client.ask(request, 9)).throttle_time_ms == 0
        await quotas.limit(CLIENT, USER, producer_byte_rate=120)
        # Another entity decides: what was used before does not count for it.
        assert (await client.ask(request, 9)).throttle_time_ms == 0
        assert (await client.ask(request, 9)).throttle_time_ms > 0
        await quotas.limit(CLIENT, USER, producer_byte_rate=0, remove=True)
        await quotas.limit(CLIENT, producer_byte_rate=0, remove=True)
        assert (await client.ask(request, 9)).throttle_time_ms == 0
        assert not quotas.quotas.limits(quotas.session())

    quota_world(scenario)


def test_who_shares_a_quota(quota_world):
    async def scenario(quotas: QuotaWorld) -> None:
        gate = quotas.quotas

        def produce(user: str, client_id: str) -> int:
            session = quotas.session(user, client_id)
            return gate.throttle_ms(session, 0, 1000, is_exempt=False) if gate.limits(session) else -1

        await quotas.limit(("user", "alice"), producer_byte_rate=100)
        assert [produce("alice", "a"), produce("alice", "b"), produce("bob", "a")] == [0, 10_000, -1]
        await quotas.limit(ANY_USER, producer_byte_rate=100)
        assert [produce("bob", "a"), produce("carol", "a"), produce("bob", "b")] == [0, 0, 10_000]
        await quotas.limit(ANY_USER, ANY_CLIENT, producer_byte_rate=100)
        assert [produce("bob", "a"), produce("bob", "b"), produce("bob", "a")] == [0, 0, 10_000]

    quota_world(scenario)


def test_only_connections_with_a_quota_lose_their_templates(quota_world):
    async def scenario(quotas: QuotaWorld) -> None:
        client = await quotas.world.connect()
        request = produce_to("events", (0, batch(b"x")))
        decoded: list[int] = []
        serve_frame = quotas.world.listener.service.serve_frame  # type: ignore[attr-defined]

        def count(frame: memoryview, session: Session) -> Any:
            decoded.append(len(frame))
            return serve_frame(frame, session)

        quotas.world.listener.service.serve_frame = count  # type: ignore[attr-defined]

        async def repeated() -> int:
            for _ in range(2):
                await client.ask(request, 9)
            decoded.clear()
            for _ in range(3):
                await client.ask(request, 9)
            return len(decoded)

        assert await repeated() == 0
        await quotas.limit(("client-id", "other"), producer_byte_rate=1)
        await quotas.limit(USER, controller_mutation_rate=1)
        assert await repeated() == 0
        await quotas.limit(CLIENT, producer_byte_rate=10**9)
        assert await repeated() == 3
        await quotas.limit(CLIENT, producer_byte_rate=0, remove=True)
        assert await repeated() == 0

    quota_world(scenario)


def test_other_nodes_have_no_quotas(quota_world):
    async def scenario(quotas: QuotaWorld) -> None:
        await quotas.limit(ANY_USER, producer_byte_rate=1, request_percentage=1, controller_mutation_rate=1)
        quotas.broker.controller_listeners = frozenset({"CONTROLLER"})
        node = quotas.session()
        node.listener = "CONTROLLER"
        assert not quotas.quotas.limits(node) and quotas.quotas.mutations(node) is None
        forwarded = quotas.session(is_forwarded=True)
        forwarded.listener = "CONTROLLER"
        assert not quotas.quotas.limits(forwarded), "the broker of the client has charged it"
        assert quotas.quotas.mutations(forwarded) is not None
        quotas.broker.controller_listeners = frozenset()

    quota_world(scenario)


def test_clients_with_many_names_do_not_fill_the_memory(quota_world, monkeypatch):
    monkeypatch.setattr("runnel.security.quotas.buckets.Buckets.__init__.__defaults__", (100,))

    async def scenario(quotas: QuotaWorld) -> None:
        await quotas.limit(ANY_CLIENT, producer_byte_rate=10)
        gate = quotas.quotas
        first = quotas.session(client_id="client-0")
        for number in range(1000):
            session = first if number == 0 else quotas.session(client_id=f"client-{number}")
            gate.throttle_ms(session, 0, 5, is_exempt=False)
        assert len(gate._rates["producer_byte_rate"]) <= 100
        # Its bucket was evicted: it shares the one that others with its name have now.
        shared = quotas.session(client_id="client-0")
        assert gate.throttle_ms(shared, 0, 80, is_exempt=False) == 0
        assert gate.throttle_ms(first, 0, 80, is_exempt=False) == 6000

    quota_world(scenario)


def test_connections_of_an_address_have_a_rate(quota_world):
    async def scenario(quotas: QuotaWorld) -> None:
        gate = quotas.quotas
        assert gate.connection_hold_ms("10.0.0.1") == 0
        await quotas.limit(("ip", "10.0.0.1"), connection_creation_rate=1)
        held = [gate.connection_hold_ms("::ffff:10.0.0.1") for _ in range(12)]
        assert held == [0] * 10 + [1000] * 2, "those that are held are not counted"
        assert gate.connection_hold_ms("10.0.0.2") == 0
        quotas.advance(11)
        assert gate.connection_hold_ms("10.0.0.1") == 0
        assert not gate.limits(quotas.session())

    quota_world(scenario)


def test_clients_that_connect_again_have_the_rate_of_their_address(quota_world):
    """Clients whose connections above the rate are held and closed, and that wait before the next."""

    async def scenario(quotas: QuotaWorld) -> None:
        gate, began_ms = quotas.quotas, quotas.clock.ms
        await quotas.limit(("ip", "10.0.0.1"), connection_creation_rate=10)
        clients = [(began_ms + index * 7, index) for index in range(16)]
        heapify(clients)
        accepted = []
        while clients[0][0] < began_ms + 121_000:
            quotas.clock.ms, index = clients[0]
            hold_ms = gate.connection_hold_ms("10.0.0.1")
            if not hold_ms:
                accepted.append(quotas.clock.ms)
            heapreplace(clients, (quotas.clock.ms + hold_ms + 50 + index % 7 * 20, index))
        # Ten seconds' worth of connections come at once.
        after_burst = [at_ms for at_ms in accepted if at_ms >= began_ms + 11_000]
        assert len(after_burst) / 110 == pytest.approx(10, rel=0.1)

    quota_world(scenario)
