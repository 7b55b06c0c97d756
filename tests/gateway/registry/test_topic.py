"""The topic `_schemas`: what Confluent's registry wrote is read, extended, and stays readable for it."""

import json
import time

from runnel.client.admin import Admin
from runnel.client.errors import TimedOut
from runnel.client.offsets import end_offsets
from runnel.client.reader import Reader
from runnel.gateway.options import GatewayOptions
from runnel.gateway.registry import store
from runnel.gateway.registry.limits import FRESH_S
from runnel.gateway.registry.store import PARTITION, SETTINGS
from runnel.model.configs import AlterOperation, ResourceType
from runnel.registry.state import RegistryState
from runnel.testing import Broker
from tests.gateway.gateways import serving
from tests.gateway.registry.calls import call, register
from tests.registry.test_replay import CONFLUENT, KARAPACE

KEY_TYPES = {"SCHEMA", "CONFIG", "MODE", "NOOP", "DELETE_SUBJECT", "CLEAR_SUBJECT", "CONTEXT"}
"""What Confluent's reader knows; it fails at others."""


def records_of(broker: Broker) -> list[tuple[bytes, bytes | None]]:
    with broker.client() as client:
        return [(message.key or b"", message.value) for message in client.read("_schemas")]


def schema_key(subject: str) -> bytes:
    """The key of its first version."""
    return b'{"keytype":"SCHEMA","subject":"%s","version":1,"magic":1}' % subject.encode()


def test_a_topic_of_confluent_is_read_extended_and_stays_readable():
    with Broker() as broker:
        with broker.client() as client:
            client.create_topic("_schemas", partitions=1, settings=dict(SETTINGS))
            for name, text in (*CONFLUENT, *KARAPACE):
                client.send("_schemas", None if text is None else text.encode(), key=name.encode())
        with serving(GatewayOptions(broker.bootstrap_servers)) as visitor:
            assert call(visitor, "GET", "/subjects")[1] == [":.c:x", "k", "orders-value"]
            assert call(visitor, "GET", "/subjects/orders-value/versions/latest")[1]["schema"] == '"bytes"'
            assert register(visitor, "new", '"long"')["id"] == 10
            assert register(visitor, "known", '"string"')["id"] == 1
            assert call(visitor, "DELETE", "/subjects/k")[1] == [1]
            assert call(visitor, "DELETE", "/subjects/k?permanent=true")[1] == [1]
        found = records_of(broker)
    added = found[len(CONFLUENT) + len(KARAPACE) :]
    for key, value in added:
        fields = json.loads(key)
        assert fields["keytype"] in KEY_TYPES
        # Confluent's order, which compaction compares, or the form in which the record was found.
        in_order = [name for name in ("keytype", "subject", "version", "magic") if name in fields]
        is_known = key.decode() in {known for known, _ in KARAPACE}
        assert is_known or key == json.dumps({n: fields[n] for n in in_order}, separators=(",", ":")).encode()
        assert value is None or isinstance(json.loads(value), dict)
    registered = [json.loads(value) for key, value in added if b'"new"' in key and value]
    assert registered == [{"subject": "new", "version": 1, "id": 10, "schema": '"long"', "deleted": False}]


def test_records_that_cannot_be_replayed_are_skipped(monkeypatch, caplog):
    """Of what is nested deeply, some is decoded with the stack that there is and cannot be encoded."""
    replay = RegistryState.replay

    def failing(state: RegistryState, key: bytes | None, value: bytes | None) -> None:
        if key == b"bad":
            raise RuntimeError(key)
        replay(state, key, value)

    monkeypatch.setattr(RegistryState, "replay", failing)
    with Broker() as broker:
        with broker.client() as client:
            client.create_topic("_schemas", partitions=1, settings=dict(SETTINGS))
            for number, levels in enumerate(range(900, 1000, 2), 1):
                key = f'{{"keytype":"SCHEMA","subject":"deep","version":{number},"magic":1}}'
                metadata = '{"x":' * levels + "1" + "}" * levels
                value = f'{{"id":{number},"schema":"\\"int\\"","metadata":{metadata}}}'
                client.send("_schemas", value.encode(), key=key.encode())
            client.send("_schemas", b"{}", key=b"bad")
            client.send("_schemas", b"{}", key=b"bad")
            for name, text in CONFLUENT:
                client.send("_schemas", None if text is None else text.encode(), key=name.encode())
        with serving(GatewayOptions(broker.bootstrap_servers)) as visitor:
            assert call(visitor, "GET", "/subjects")[1] == [":.c:x", "orders-value"]
            # None of its records is replaced.
            assert register(visitor, "deep", '"int"')["version"] == 51
    assert len([one for one in caplog.records if one.name == "runnel.registry"]) == 1


def test_a_replay_that_is_interrupted_is_continued(monkeypatch):
    messages = Reader.messages
    read: list[int] = []

    async def interrupted(*arguments, **options):
        async for message in messages(*arguments, **options):
            if read == [0, 1, 2]:
                read.append(-1)
                raise TimedOut("the broker did not answer")
            read.append(message.offset)
            yield message

    monkeypatch.setattr(Reader, "messages", interrupted)
    with Broker() as broker:
        with broker.client() as client:
            client.create_topic("_schemas", partitions=1, settings=dict(SETTINGS))
            for number in range(6):
                value = {"subject": f"s{number}", "version": 1, "id": number + 1, "schema": '"int"'}
                client.send("_schemas", json.dumps(value).encode(), key=schema_key(f"s{number}"))
        with serving(GatewayOptions(broker.bootstrap_servers)) as visitor:
            assert call(visitor, "GET", "/subjects")[0] >= 500
            assert call(visitor, "GET", "/subjects")[1] == [f"s{number}" for number in range(6)]
    assert read == [0, 1, 2, -1, 3, 4, 5]


def test_the_topic_is_created_compacted_with_one_partition(plain_broker, registry):
    register(registry, "created", '"int"')

    with plain_broker.client() as client:
        topic = client.run(lambda cluster: Admin(cluster).topic("_schemas"))
        settings = client.run(lambda cluster: Admin(cluster).settings(ResourceType.TOPIC, "_schemas"))
    assert len(topic.partitions) == 1
    assert {one.name: one.value for one in settings}["cleanup.policy"] == "compact"


def test_nothing_is_registered_in_a_topic_that_drops_records():
    with Broker() as broker, serving(GatewayOptions(broker.bootstrap_servers)) as visitor:
        with broker.client() as client:
            # As brokers create topics that clients ask for.
            client.create_topic("_schemas", partitions=1)

            status, found = call(visitor, "POST", "/subjects/a/versions", {"schema": '"int"'})

            assert (status, found["error_code"]) == (500, 50001)
            assert "cleanup.policy=delete" in found["message"]
            assert call(visitor, "GET", "/subjects") == (200, [])
            change = [("cleanup.policy", AlterOperation.SET, "compact")]
            client.run(lambda cluster: Admin(cluster).alter_settings(ResourceType.TOPIC, "_schemas", change))
        assert register(visitor, "a", '"int"')["id"] == 1


def test_a_topic_that_was_deleted_is_an_empty_registry():
    with Broker() as broker, serving(GatewayOptions(broker.bootstrap_servers)) as visitor:
        register(visitor, "a", '"int"')
        register(visitor, "b", '"long"')
        with broker.client() as client:
            client.run(lambda cluster: Admin(cluster).delete_topic("_schemas"))

        found = register(visitor, "c", '"string"')

        assert found["id"] == 1
        assert call(visitor, "GET", "/subjects")[1] == ["c"]


def test_a_topic_with_as_many_records_as_the_one_before_is_another_registry():
    with Broker() as broker, serving(GatewayOptions(broker.bootstrap_servers)) as visitor:
        register(visitor, "a", '"int"')
        register(visitor, "b", '"long"')
        with broker.client() as client:
            end = client.run(lambda cluster: end_offsets(cluster, [PARTITION]))[PARTITION]
            client.delete_topic("_schemas")
            client.create_topic("_schemas", partitions=1, settings=dict(SETTINGS))
            client.send("_schemas", b'{"id":7,"schema":"\\"bytes\\""}', key=schema_key("c"))
            for _ in range(end - 1):
                client.send("_schemas", None, key=b'{"keytype":"NOOP","magic":0}')
            assert client.run(lambda cluster: end_offsets(cluster, [PARTITION])) == {PARTITION: end}
        time.sleep(FRESH_S)

        assert call(visitor, "GET", "/subjects")[1] == ["c"]
        assert register(visitor, "d", '"string"')["id"] == 8


def test_what_was_deleted_during_a_pause_is_gone_although_compaction_has_removed_the_tombstone(monkeypatch):
    pause_s = 0.5
    monkeypatch.setattr(store, "STATE_AGE_MAX_S", pause_s)
    compacted = {
        **SETTINGS,
        "delete.retention.ms": "0",
        "min.cleanable.dirty.ratio": "0",
        "segment.ms": "1",
    }
    brisk = {"log.cleaner.backoff.ms": 50, "log.retention.check.interval.ms": 100}
    with Broker(brisk) as broker, serving(GatewayOptions(broker.bootstrap_servers)) as visitor:
        with broker.client() as client:
            client.create_topic("_schemas", partitions=1, settings=compacted)
            for number, name in enumerate(("deleted", "kept"), 1):
                value = b'{"id":%d,"schema":"\\"int\\""}' % number
                client.send("_schemas", value, key=schema_key(name))
            assert call(visitor, "GET", "/subjects")[1] == ["deleted", "kept"]

            client.send("_schemas", None, key=schema_key("deleted"))
            deadline_s = time.monotonic() + 30
            while schema_key("deleted") in (key for key, _ in records_of(broker)):
                assert time.monotonic() < deadline_s, "the tombstone was not removed"
                # A new segment, so that those before it are compacted.
                client.send("_schemas", None, key=b'{"keytype":"NOOP","magic":0}')
                time.sleep(0.1)
        time.sleep(pause_s)

        assert call(visitor, "GET", "/subjects")[1] == ["kept"]
