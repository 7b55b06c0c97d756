"""Topics that validate schemas: what is accepted, what is refused, and when it is known."""

import asyncio
from pathlib import Path

import pytest

from runnel.batch.build import build_batch
from runnel.batch.compression import Compression
from runnel.batch.records import Record
from runnel.broker.runtime import followed_schemas, schema_validation
from runnel.messages.delete_topics import DeleteTopicsRequest
from runnel.messages.fetch import FetchRequest
from runnel.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from runnel.model.configs import ResourceType
from runnel.model.errors import ErrorCode
from runnel.registry.framing import framed
from runnel.registry.records import DELETE_SUBJECT, TOPIC, Key
from runnel.registry.subject_ids import RECORD_NAME, TOPIC_RECORD_NAME, Change
from runnel.wire.frame import request_frame
from tests.broker.brokers import Brokers
from tests.broker.requests import NOW_MS, batch, only, produce_to
from tests.broker.schema_calls import (
    INVALID,
    OK,
    UNAVAILABLE,
    VALIDATED,
    produce,
    removal,
    schema_record,
    valued,
    write_schemas,
)
from tests.broker.txn_calls import begin, committed, end, play, write
from tests.broker.world import BrokerWorld, Client


def end_offset(world: BrokerWorld, topic: str = "t") -> int:
    return world.broker.partition_at[topic, 0].log.end_offset


async def ready(world: BrokerWorld, *records: tuple[bytes, bytes | None], **configs: str) -> Client:
    """A topic `t` that validates, and the records of a registry."""
    await world.create("t", 1, **(configs or VALIDATED))
    await world.create(TOPIC, cleanup_policy="compact")
    client = await world.connect()
    if records:
        await write_schemas(client, *records)
    return client


@pytest.fixture
def no_delay(monkeypatch):
    """What is registered or deleted is seen at once; nothing is waited for."""
    monkeypatch.setattr(followed_schemas, "FRESH_MS", 0)
    monkeypatch.setattr(followed_schemas, "MISSING_MS", 0)
    monkeypatch.setattr(schema_validation, "WAIT_MS", 300)


def test_records_without_a_registered_id_are_refused_and_named(tell):
    async def scenario(world):
        client = await ready(world, schema_record("t-value", 1), schema_record("other-value", 2))
        assert (await produce(client, "t", 1, 1)).base_offset == 0

        reply = await produce(client, "t", 1, 2, 0)
        # What is not framed needs no look at the registry: all such records are named, and no others.
        assert (reply.error_code, reply.base_offset) == (INVALID, -1)
        why = "the value does not begin with a zero byte and the id of a schema"
        assert [(each.batch_index, each.batch_index_error_message) for each in reply.record_errors] == [
            (2, why)
        ]
        assert reply.error_message == f"record 2 of the batch is refused: {why}"

        reply = await produce(client, "t", 2, 1, 2, 7)
        found = {each.batch_index: each.batch_index_error_message for each in reply.record_errors}
        assert found == {
            index: f"the value has schema {schema_id}, which is not registered under t-value"
            for index, schema_id in ((0, 2), (2, 2), (3, 7))
        }
        older = only(await client.ask(produce_to("t", (0, valued(2))), 7))
        assert older.error_code == INVALID
        assert end_offset(world) == 2
        assert (await produce(client, "t", 1)).base_offset == 2
        assert world.broker.traffic.of("t").failed_produces == 3

    tell(scenario)


def test_a_schema_that_is_registered_later_is_accepted_at_once(tell):
    async def scenario(world):
        client = await ready(world, schema_record("t-value", 1))
        assert (await produce(client, "t", 1)).error_code == OK
        for schema_id in range(2, 12):
            assert (await produce(client, "t", schema_id)).error_code == INVALID
            await write_schemas(client, schema_record("t-value", schema_id, schema_id))
            assert (await produce(client, "t", schema_id)).error_code == OK

    tell(scenario)


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize(("count", "padding"), [(3, 0), (3, 100_000), (3_000, 0)])
def test_batches_of_every_codec_and_size(tell, compression, count, padding):
    """Small ones are validated at once, large ones and those that unpack to much by a thread."""

    async def scenario(world):
        client = await ready(world, schema_record("t-value", 1))
        options = {"compression": compression, "padding": padding}
        for _ in range(2):
            assert (await produce(client, "t", *[1] * count, **options)).error_code == OK
        for unknown in (0, 2):
            reply = await produce(client, "t", *[1] * (count - 1), unknown, **options)
            assert reply.error_code == INVALID
            assert [each.batch_index for each in reply.record_errors] == [count - 1]
        assert end_offset(world) == 2 * count
        assert world.broker.schema_validation._held_bytes == 0

    tell(scenario)


def test_nulls_pass_and_keys_are_validated_by_their_own_subject(tell):
    async def scenario(world):
        settings = {"runnel_key_schema_validation": "true", **VALIDATED}
        client = await ready(world, schema_record("t-value", 1), schema_record("t-key", 2), **settings)

        async def outcome(key, value):
            records = bytes(build_batch([Record(0, NOW_MS, key, value)]))
            return only(await client.ask(produce_to("t", (0, records)), 9)).error_code

        one, two = framed(1, b""), framed(2, b"")
        assert await outcome(two, one) == OK
        assert await outcome(None, one) == OK
        assert await outcome(two, None) == OK
        assert await outcome(None, None) == OK
        assert await outcome(one, one) == INVALID
        assert await outcome(two, two) == INVALID
        assert await outcome(b"key", one) == INVALID

    tell(scenario)


@pytest.mark.parametrize(
    ("strategy", "accepted"),
    [(None, {1, 2}), (RECORD_NAME, {3}), (TOPIC_RECORD_NAME, {4})],
)
def test_subject_name_strategies(tell, strategy, accepted):
    async def scenario(world):
        records = [
            schema_record("t-value", 1),
            schema_record("t-value", 2, 2, is_deleted=True),
            schema_record("a.R", 3, name="a.R"),
            schema_record("t-a.R", 4, name="a.R"),
            schema_record("u-a.R", 5, name="a.R"),
            schema_record("a.S", 6, name="a.R"),
            schema_record(":.c:t-value", 7),
        ]
        more = {} if strategy is None else {"runnel_value_subject_name_strategy": strategy}
        client = await ready(world, *records, **VALIDATED, **more)
        outcomes = {number: (await produce(client, "t", number)).error_code for number in range(1, 9)}
        assert {number for number, code in outcomes.items() if code == OK} == accepted
        assert {code for number, code in outcomes.items() if number not in accepted} == {INVALID}

    tell(scenario)


def test_ids_are_valid_until_they_are_deleted_for_good(tell, no_delay):
    async def scenario(world):
        client = await ready(world, schema_record("t-value", 1), schema_record("t-value", 2, 2))
        await write_schemas(client, (Key(DELETE_SUBJECT, "t-value").encode(), b'{"version":2}'))
        assert (await produce(client, "t", 1, 2)).error_code == OK
        await write_schemas(client, removal("t-value", 1))
        assert (await produce(client, "t", 1)).error_code == INVALID
        assert (await produce(client, "t", 2)).error_code == OK

    tell(scenario)


def test_what_a_gateway_did_not_commit_is_not_registered(tmp_path):
    async def scenario(world: BrokerWorld, client: Client) -> None:
        await world.create("validated", 1, **VALIDATED)
        await world.create(TOPIC)
        for number, is_commit in enumerate((False, True, False), start=1):
            who = await begin(client, "x")
            options = {"producer_id": who[0], "producer_epoch": who[1], "transactional": True}
            record = schema_record("validated-value", number, number)
            await write_schemas(client, record, transactional_id="x", base_sequence=0, **options)
            assert (await produce(client, "validated", number)).error_code == INVALID
            await end(client, "x", who, is_commit=is_commit)
            while world.broker.partition_at[TOPIC, 0].last_stable_offset < end_offset(world, TOPIC):
                await asyncio.sleep(0.01)
        outcomes = [(await produce(client, "validated", number)).error_code for number in (1, 2, 3)]
        assert outcomes == [INVALID, OK, INVALID]

    play(tmp_path, scenario)


def test_without_a_registry_nothing_is_registered(tell, no_delay):
    async def scenario(world):
        await world.create("t", 1, **VALIDATED)
        client = await world.connect()
        assert (await produce(client, "t", 0)).error_code == INVALID
        assert (await produce(client, "t", 1)).error_code == INVALID
        await world.create(TOPIC)
        await write_schemas(client, schema_record("t-value", 1))
        assert (await produce(client, "t", 1)).error_code == OK

    tell(scenario)


def test_a_registry_that_is_created_again_is_read_from_its_start(tell, no_delay):
    async def scenario(world):
        client = await ready(world, schema_record("t-value", 1))
        assert (await produce(client, "t", 1)).error_code == OK
        reply = await client.ask(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=10_000), 5)
        assert reply.responses[0].error_code == OK
        await world.create(TOPIC)
        await write_schemas(client, schema_record("t-value", 2))
        assert (await produce(client, "t", 1)).error_code == INVALID
        assert (await produce(client, "t", 2)).error_code == OK

    tell(scenario)


def test_after_an_hour_without_batches_the_registry_is_read_from_its_start(tell, no_delay, monkeypatch):
    """Tombstones may be gone by then."""

    async def scenario(world):
        client = await ready(world, schema_record("t-value", 1))
        assert (await produce(client, "t", 1)).error_code == OK
        followed = world.broker.schema_validation._schemas
        followed._reading.apply(Change("t-value", 9, 9))
        assert (await produce(client, "t", 9)).error_code == OK
        monkeypatch.setattr(followed_schemas, "AGE_MAX_MS", -1)
        assert (await produce(client, "t", 9)).error_code == INVALID
        assert (await produce(client, "t", 1)).error_code == OK

    tell(scenario)


def test_a_producer_continues_after_a_refusal(tell):
    async def scenario(world):
        client = await ready(world, schema_record("t-value", 1))

        async def outcome(schema_id, sequence):
            options = {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence}
            return await produce(client, "t", schema_id, **options)

        assert (await outcome(1, 0)).base_offset == 0
        assert (await outcome(0, 1)).error_code == INVALID
        assert (await outcome(2, 1)).error_code == INVALID
        assert (await outcome(1, 1)).base_offset == 1
        # A duplicate has the offset of the original.
        assert (await outcome(1, 1)).base_offset == 1
        assert end_offset(world) == 2

    tell(scenario)


def test_a_transaction_continues_after_a_refusal(tmp_path):
    async def scenario(world: BrokerWorld, client: Client) -> None:
        await world.create(TOPIC)
        await write_schemas(client, schema_record("t-value", 1))
        await change(client, "t", "runnel.value.schema.validation", "true")
        who = await begin(client)
        assert await write(client, "x", who, framed(2, b"a")) == INVALID
        assert await write(client, "x", who, b"a") == INVALID
        assert await write(client, "x", who, framed(1, b"b")) == OK
        assert await write(client, "x", who, framed(2, b"c"), sequence=1) == INVALID
        assert await write(client, "x", who, framed(1, b"d"), sequence=1) == OK
        await end(client, "x", who)
        while len(found := await committed(client)) < 2:
            await asyncio.sleep(0.01)
        assert found == [framed(1, b"b"), framed(1, b"d")]

    play(tmp_path, scenario)


async def change(client: Client, topic: str, name: str, value: str) -> None:
    configs = [AlterableConfig(name, 0, value)]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(ResourceType.TOPIC, topic, configs)])
    (answer,) = (await client.ask(request, 1)).responses
    assert answer.error_code == OK, answer.error_message


def test_the_setting_applies_to_connections_that_produce_already(tell):
    """Repeated requests are not decoded where nothing is validated."""

    async def scenario(world):
        client = await ready(world, schema_record("t-value", 1), runnel_value_schema_validation="false")
        for _ in range(3):
            assert (await produce(client, "t", 0)).error_code == OK
        await change(client, "t", "runnel.value.schema.validation", "true")
        for _ in range(3):
            assert (await produce(client, "t", 0)).error_code == INVALID
            assert (await produce(client, "t", 2)).error_code == INVALID
        assert (await produce(client, "t", 1)).error_code == OK
        await change(client, "t", "runnel.value.schema.validation", "false")
        assert (await produce(client, "t", 0)).error_code == OK
        assert end_offset(world) == 5

    tell(scenario)


def test_a_batch_that_waits_is_not_overtaken(tell):
    async def scenario(world):
        client = await ready(world, schema_record("t-value", 1))
        # The first one needs the registry, the third one a thread.
        batches = [valued(1), valued(1, 1), valued(*[1] * 3_000), valued(1), valued(2), valued(1)]
        for records in batches:
            client.send(produce_to("t", (0, records)), 9)
        replies = [only(await client.receive()) for _ in batches]
        assert [reply.base_offset for reply in replies] == [0, 1, 3, 3_003, -1, 3_004]

    tell(scenario)


def test_batches_of_one_request_are_appended_in_their_order(tell):
    """Also two for one partition, of which the second is validated sooner."""

    async def scenario(world):
        client = await ready(world, schema_record("t-value", 1))
        await world.create("plain")
        request = produce_to("t", (0, valued(*[1] * 3_000)), (0, valued(1)), (0, valued(2)), (7, valued(1)))
        request.topic_data += produce_to("plain", (0, batch(b"x"))).topic_data
        reply = await client.ask(request, 9)
        of_t, of_plain = (topic.partition_responses for topic in reply.responses)
        assert [(each.base_offset, each.error_code) for each in of_t] == [
            (0, OK),
            (3_000, OK),
            (-1, INVALID),
            (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code),
        ]
        assert [each.base_offset for each in of_plain] == [0]

    tell(scenario)


def test_a_request_without_acks_is_validated_as_well(tell):
    async def scenario(world):
        client, other = await ready(world, schema_record("t-value", 1)), await world.connect()
        for records in (valued(1), valued(*[1] * 3_000), valued(1)):
            request = produce_to("t", (0, records), acks=0)
            client.writer.write(b"".join(request_frame(request, 9, 1, "test")))
        assert (await produce(client, "t", 1)).base_offset == 3_002
        for invalid in (0, 2):
            other.send(produce_to("t", (0, valued(invalid)), acks=0), 9)
            assert await other.is_closed()
            other = await world.connect()
        assert end_offset(world) == 3_003

    tell(scenario)


def test_more_batches_than_may_wait_are_refused_for_now(tell, no_delay, monkeypatch):
    monkeypatch.setattr(schema_validation, "VALIDATED_HELD_BYTES_MAX", 50_000)

    async def scenario(world):
        await world.create("t", 1, **VALIDATED)
        clients = [await world.connect() for _ in range(3)]
        monkeypatch.setattr(followed_schemas, "MISSING_MS", 200)
        monkeypatch.setattr(schema_validation, "WAIT_MS", 20_000)
        for client in clients:
            client.send(produce_to("t", (0, valued(1, padding=20_000))), 9)
        codes = sorted([only(await client.receive()).error_code for client in clients])
        assert codes == [UNAVAILABLE, INVALID, INVALID]
        # One that is larger waits alone.
        reply = await produce(clients[0], "t", 1, padding=60_000)
        assert reply.error_code == INVALID

    tell(scenario)


def test_a_corrupt_batch_is_corrupt(tell):
    async def scenario(world):
        client = await ready(world, schema_record("t-value", 1))
        records = bytearray(valued(1))
        records[-2] ^= 1
        reply = only(await client.ask(produce_to("t", (0, bytes(records))), 9))
        assert reply.error_code == ErrorCode.CORRUPT_MESSAGE.code

    tell(scenario)


# The registry is led by another broker.


def across(folder: Path, scenario) -> None:
    """Broker 1 leads `t`, broker 2 leads `_schemas` and `u`, which broker 1 follows."""

    async def run() -> None:
        async with Brokers(folder, {}) as brokers:
            await brokers.create(TOPIC, [2])
            await brokers.create("t", [1])
            await brokers.create("u", [2], 1)
            for client in brokers.clients.values():
                for topic in ("t", "u"):
                    await change(client, topic, "runnel.value.schema.validation", "true")
            await scenario(brokers, brokers.clients[1], brokers.clients[2])

    asyncio.run(run())


def test_schemas_are_read_from_another_broker(tmp_path, no_delay, monkeypatch):
    monkeypatch.setattr(followed_schemas, "READ_BYTES", 1_000)

    async def scenario(brokers, producer, registry):
        await write_schemas(registry, schema_record("t-value", 1))
        assert (await produce(producer, "t", 1)).error_code == OK
        for number in range(2, 40):
            await write_schemas(registry, schema_record("t-value", number, number))
        assert (await produce(producer, "t", *range(1, 40))).error_code == OK
        assert (await produce(producer, "t", 40)).error_code == INVALID
        await write_schemas(registry, removal("t-value", 1))
        assert (await produce(producer, "t", 1)).error_code == INVALID
        asked = [topic for each in brokers.peers[1].of(FetchRequest) for topic in each.topics]
        fetched = [each.partitions[0].fetch_offset for each in asked if each.topic == TOPIC]
        assert len(fetched) > 2 and fetched == sorted(set(fetched))

        # In a new epoch, records may have been replaced.
        brokers.peers[1].sent.clear()
        await brokers.change(TOPIC, 0, 2)
        assert (await produce(producer, "t", 2)).error_code == OK
        assert (await produce(producer, "t", 1)).error_code == INVALID
        asked = [topic for each in brokers.peers[1].of(FetchRequest) for topic in each.topics]
        assert next(each.partitions[0].fetch_offset for each in asked if each.topic == TOPIC) == 0

    across(tmp_path, scenario)


@pytest.mark.parametrize("fault", ["unreachable", "silent", "leaderless"])
def test_while_the_registry_is_offline_known_ids_are_accepted(tmp_path, no_delay, fault):
    async def scenario(brokers, producer, registry):
        await write_schemas(registry, schema_record("t-value", 1))
        assert (await produce(producer, "t", 1)).error_code == OK
        peers = brokers.peers[1]
        if fault == "leaderless":
            await brokers.change(TOPIC, 0, -1)
        else:
            getattr(peers, fault).update({"ListOffsets", "Fetch"})

        assert (await produce(producer, "t", 1)).error_code == OK
        reply = await produce(producer, "t", 2)
        assert reply.error_code == UNAVAILABLE
        assert reply.error_message.startswith("the schemas of t cannot be validated: _schemas: ")
        assert (await produce(producer, "t", 0)).error_code == INVALID
        if fault == "silent":
            # It ends when the request does, which these peers keep open.
            return

        if fault == "leaderless":
            await brokers.change(TOPIC, 0, 2)
        peers.unreachable.clear()
        await write_schemas(registry, schema_record("t-value", 2, 2))
        async with asyncio.timeout(20):
            while (reply := await produce(producer, "t", 2)).error_code == UNAVAILABLE:
                await asyncio.sleep(0.05)
        assert reply.error_code == OK
        assert (await produce(producer, "t", 3)).error_code == INVALID

    across(tmp_path, scenario)


def test_a_follower_answers_that_it_does_not_lead(tmp_path, no_delay):
    async def scenario(brokers, producer, registry):
        reply = await produce(producer, "u", 0)
        assert reply.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER.code

    across(tmp_path, scenario)


def test_a_broker_may_learn_later_than_others_that_there_is_a_registry(tmp_path, monkeypatch):
    monkeypatch.setattr(followed_schemas, "MISSING_MS", 20_000)
    monkeypatch.setattr(schema_validation, "WAIT_MS", 20_000)

    async def run() -> None:
        async with Brokers(tmp_path, {}) as brokers:
            producer, registry = brokers.clients[1], brokers.clients[2]
            await brokers.create("t", [1])
            await change(producer, "t", "runnel.value.schema.validation", "true")
            created = brokers.topic(TOPIC, [2])
            await brokers.submit(created, 2)
            await write_schemas(registry, schema_record("t-value", 1))
            producer.send(produce_to("t", (0, valued(1))), 9)
            await asyncio.sleep(0.1)
            await brokers.submit(created, 1)
            assert only(await producer.receive()).error_code == OK

    asyncio.run(run())
