"""A worker of the chain ends when its client would wait for ever."""

import pytest
from confluent_kafka import Consumer, KafkaError

from runnel.broker.apis import offset_fetch
from runnel.broker.runtime.context import Context
from runnel.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from runnel.model.errors import ErrorCode
from runnel.testing import Broker
from tools.crash.chain.transact import ProducerUnusable
from tools.crash.chain.worker import is_record

TOPIC = "chain-in"


class Reply:
    """What `consume` returns if there is no record."""

    def __init__(self, error: KafkaError) -> None:
        self._error = error

    def error(self) -> KafkaError:
        return self._error


@pytest.mark.parametrize(
    ("error", "is_end"),
    [
        (KafkaError(KafkaError._PARTITION_EOF), False),
        (KafkaError(KafkaError.NOT_COORDINATOR), False),
        (KafkaError(KafkaError._FATAL), True),
        (KafkaError(KafkaError.UNKNOWN_MEMBER_ID, "fenced", fatal=True), True),
    ],
)
def test_errors_after_which_no_record_comes_end_the_worker(error: KafkaError, is_end: bool) -> None:
    message = Reply(error)
    if is_end:
        with pytest.raises(ProducerUnusable):
            is_record(message)
    else:
        assert not is_record(message)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_whose_coordinator_moves_during_its_assignment_is_not_used_any_more(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka does not repeat the OffsetFetch, and fetches nothing."""
    fetch = offset_fetch._fetch
    moves = [ErrorCode.NOT_COORDINATOR.code]

    def fetch_of(group: OffsetFetchRequestGroup, require_stable: bool, ctx: Context) -> object:
        if moves:
            return OffsetFetchResponseGroup(group_id=group.group_id, error_code=moves.pop())
        return fetch(group, require_stable, ctx)

    monkeypatch.setattr(offset_fetch, "_fetch", fetch_of)
    with Broker() as broker:
        with broker.client() as client:
            client.create_topic(TOPIC)
            client.send(TOPIC, b"1")
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "chain",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        consumer = Consumer(settings)
        try:
            consumer.subscribe([TOPIC])
            with pytest.raises(ProducerUnusable, match="committed offsets"):
                for _ in range(10):
                    assert not any(is_record(message) for message in consumer.consume(1, timeout=10))
        finally:
            consumer.close()
