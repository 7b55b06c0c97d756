"""A stream's decisions against a real broker; Spark's part is played by the test."""

import pickle

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from runnel.client.admin import Admin
from runnel.model.ids import TopicPartition
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.errors import BadOption, BrokerUnreachable, DataLost, UnknownTopic
from runnel.pipelines.source import stream_reader
from runnel.pipelines.source.stream_offsets import StreamOffsets
from runnel.testing import Broker
from tests.pipelines.source.tables import read_all, send_in_transaction, source, stream, without_ids

ALL = ReadAllAvailable()


@pytest.fixture
def hasty(monkeypatch) -> None:
    """Retries do not change the responses of this broker."""
    monkeypatch.setattr(stream_reader, "END_OFFSET_RETRY_S", 0.01)
    monkeypatch.setattr(stream_reader, "COMMIT_TIMEOUT_S", 0.5)


def send(broker: Broker, topic: str, count: int, partition: int = 0) -> None:
    with broker.client() as client:
        for number in range(count):
            client.send(topic, b"%d" % number, partition=partition)


def create(broker: Broker, topic: str = "orders", partitions: int = 1) -> None:
    with broker.client() as client:
        client.create_topic(topic, partitions=partitions, settings={"retention.ms": "-1"})


def places(reader, start, end) -> list[tuple[str, int, int]]:
    found = read_all(reader, reader.partitions(start, end))
    return [(row["topic"], row["partition"], row["offset"]) for row in found]


def test_batch_after_batch(runnel: Broker) -> None:
    create(runnel)
    send(runnel, "orders", 2)
    reader = stream(runnel, subscribe="orders")
    start = reader.initialOffset()
    assert without_ids(start) == {"orders": {"0": 2}}, "without another wish a stream begins with what is new"
    assert reader.latestOffset(start, ALL) == start
    assert reader.partitions(start, start) == []
    send(runnel, "orders", 3)
    end = reader.latestOffset(start, ALL)
    assert places(reader, start, end) == [("orders", 0, 2), ("orders", 0, 3), ("orders", 0, 4)]
    assert without_ids(reader.reportLatestOffset()) == {"orders": {"0": 5}}
    reader.stop()


def test_tasks_get_a_copy_without_connections(runnel: Broker) -> None:
    create(runnel)
    send(runnel, "orders", 2)
    reader = stream(runnel, subscribe="orders", startingOffsets="earliest")
    planned = reader.partitions(reader.initialOffset(), {"orders": {"0": 2}})
    copied, partitions = pickle.loads(pickle.dumps((reader, planned)))
    assert len(read_all(copied, partitions)) == 2
    reader.stop()


def test_new_partitions_and_topics_are_read_from_their_beginning(runnel: Broker) -> None:
    create(runnel, "orders.eu")
    send(runnel, "orders.eu", 1)
    reader = stream(runnel, subscribePattern=r"orders\..*", startingOffsets="earliest")
    start = reader.initialOffset()
    first = reader.latestOffset(start, ALL)
    with runnel.client() as client:
        client.run(lambda cluster: Admin(cluster).add_partitions("orders.eu", 2))
    create(runnel, "orders.us")
    create(runnel, "others")
    send(runnel, "orders.eu", 2, partition=1)
    send(runnel, "orders.us", 1)
    second = reader.latestOffset(first, ALL)
    assert without_ids(second) == {"orders.eu": {"0": 1, "1": 2}, "orders.us": {"0": 1}}
    assert places(reader, first, second) == [("orders.eu", 1, 0), ("orders.eu", 1, 1), ("orders.us", 0, 0)]
    limited = reader.latestOffset(first, ReadMaxRows(2))
    assert sum(sum(numbers.values()) for numbers in limited.values()) - 1 == 2
    reader.stop()


def test_limits_and_the_end_of_available_now(runnel: Broker) -> None:
    create(runnel, partitions=2)
    send(runnel, "orders", 10, partition=0)
    send(runnel, "orders", 5, partition=1)
    reader = stream(runnel, subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=6)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(6)
    position = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    send(runnel, "orders", 4, partition=1)
    seen = 0
    for _ in range(20):
        following = reader.latestOffset(position, limit)
        if following == position:
            break
        batch = places(reader, position, following)
        assert 0 < len(batch) <= 6 + 2
        seen += len(batch)
        position = following
    assert without_ids(position) == {"orders": {"0": 10, "1": 5}} and seen == 15, (
        "what came later waits for the next query"
    )
    reader.stop()


def test_progress_is_committed_as_a_group(runnel: Broker) -> None:
    create(runnel)
    send(runnel, "orders", 3)
    partition = TopicPartition("orders", 0)
    reader = stream(runnel, subscribe="orders", startingOffsets="earliest", kafka__group__id="watched")
    with BrokerView(runnel.bootstrap_servers) as broker:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        reader.commit({"orders": {"0": 2}})
        assert broker.group_offsets("watched") == {partition: 2}
        reader.latestOffset(end, ALL)
        assert broker.group_offsets("watched") == {partition: 3}, "also when no batch follows"
    reader.stop()


def test_progress_that_cannot_be_committed_fails_nothing_and_is_retried(
    runnel: Broker, caplog, hasty
) -> None:
    create(runnel)
    reader = stream(runnel, subscribe="orders", kafka__group__id="")
    assert reader._options.group_id == "spark-orders"
    reader.initialOffset()
    with runnel.client() as client:
        client.delete_topic("orders")
    place = {"orders": {"0": 5}}
    for _ in range(2):
        reader.commit(place)
    assert caplog.text.count("the progress could not be committed as group spark-orders") == 1, (
        "not at once again"
    )
    create(runnel)
    reader._retry_report_s = 0.0
    reader.commit(place)
    with BrokerView(runnel.bootstrap_servers) as broker:
        assert broker.group_offsets("spark-orders") == {TopicPartition("orders", 0): 5}
    reader.stop()


def test_a_topic_recreated_is_data_loss(runnel: Broker, hasty) -> None:
    create(runnel)
    send(runnel, "orders", 5)
    strict, lenient = (
        stream(runnel, subscribe="orders", startingOffsets="earliest", failOnDataLoss=value)
        for value in ("true", "false")
    )
    end = strict.latestOffset(strict.initialOffset(), ALL)
    assert lenient.latestOffset(lenient.initialOffset(), ALL) == end
    assert without_ids(end) == {"orders": {"0": 5}}
    with runnel.client() as client:
        client.delete_topic("orders")
    with pytest.raises(DataLost, match="orders-0 of this stream no longer exist"):
        strict.latestOffset(end, ALL)
    assert lenient.latestOffset(end, ALL) == {}
    create(runnel)
    # At least as long as the old one, so offsets do not reveal that it was recreated.
    send(runnel, "orders", 6)
    now = stream(runnel, subscribe="orders")
    now.prepareForTriggerAvailableNow()
    for reader in (strict, strict, stream(runnel, subscribe="orders"), now):
        with pytest.raises(DataLost, match="topic orders was deleted and recreated"):
            reader.latestOffset(end, ALL)
        reader.stop()
    for is_available_now in (False, True):
        again = stream(runnel, subscribe="orders", failOnDataLoss="false")
        if is_available_now:
            again.prepareForTriggerAvailableNow()
        following = again.latestOffset(end, ReadMaxRows(4))
        assert without_ids(following) == {"orders": {"0": 4}}
        assert places(again, end, following) == [("orders", 0, offset) for offset in range(4)]
        last = again.latestOffset(following, ALL)
        assert places(again, following, last) == [("orders", 0, 4), ("orders", 0, 5)]
        again.stop()
    with pytest.raises(DataLost, match="topic orders was deleted and recreated"):
        strict.partitions(end, following)
    strict.stop()
    lenient.stop()


def test_a_truncated_log_resumes_at_its_end(runnel: Broker, hasty) -> None:
    create(runnel)
    send(runnel, "orders", 3)
    orders = TopicPartition("orders", 0)
    reader = stream(runnel, subscribe="orders")
    beyond = StreamOffsets({orders: 7}, StreamOffsets.from_json(reader.initialOffset()).topic_ids).to_json()
    with pytest.raises(DataLost, match="orders-0 end before the offset"):
        reader.latestOffset(beyond, ALL)
    reader.stop()
    for limit in (ALL, ReadMaxRows(1)):
        lenient = stream(runnel, subscribe="orders", failOnDataLoss="false")
        end = lenient.latestOffset(beyond, limit)
        assert without_ids(end) == {"orders": {"0": 3}}
        assert places(lenient, beyond, end) == [], "nothing is read twice"
        lenient.stop()
    now = stream(runnel, subscribe="orders", failOnDataLoss="false")
    now.prepareForTriggerAvailableNow()
    assert now.latestOffset(beyond, ALL) == end and now.latestOffset(end, ALL) == end
    now.stop()


def test_a_checkpoint_without_ids_resumes(runnel: Broker, hasty) -> None:
    create(runnel)
    send(runnel, "orders", 3)
    old = {"orders": {"0": 1}}
    reader = stream(runnel, subscribe="orders")
    end = reader.latestOffset(old, ALL)
    assert places(reader, old, end) == [("orders", 0, 1), ("orders", 0, 2)]
    assert places(reader, old, {"orders": {"0": 2}}) == [("orders", 0, 1)]
    assert reader.latestOffset(end, ALL) == end
    reader.stop()
    # Whether a log that ends too early is another one, is unknown: rather twice than never.
    beyond = {"orders": {"0": 7}}
    lenient = stream(runnel, subscribe="orders", failOnDataLoss="false")
    assert lenient.latestOffset(beyond, ALL) == end
    assert places(lenient, beyond, end) == [("orders", 0, offset) for offset in range(3)]
    lenient.stop()


def test_a_new_partition_whose_first_records_are_deleted(runnel: Broker) -> None:
    create(runnel)
    send(runnel, "orders", 3)
    with runnel.client() as client:
        before = {TopicPartition("orders", 0): 2}
        client.run(lambda cluster: Admin(cluster).delete_records(before))
    reader = stream(runnel, subscribe="orders")
    with pytest.raises(
        DataLost, match="the first records of the new partitions orders-0 are already deleted"
    ):
        reader.partitions({}, {"orders": {"0": 3}})
    lenient = stream(runnel, subscribe="orders", failOnDataLoss="false")
    assert places(lenient, {}, {"orders": {"0": 3}}) == [("orders", 0, 2)]
    reader.stop()
    lenient.stop()


def test_a_broker_that_restarts_between_batches(runnel: Broker) -> None:
    create(runnel)
    send(runnel, "orders", 1)
    reader = stream(runnel, subscribe="orders", startingOffsets="earliest")
    start = reader.initialOffset()
    runnel.restart()
    end = reader.latestOffset(start, ALL)
    assert places(reader, start, end) == [("orders", 0, 0)]
    reader.commit(end)
    reader.stop()


def test_a_batch_of_aborted_records_only(runnel: Broker) -> None:
    create(runnel)
    send_in_transaction(runnel, "orders", [b"a", b"b"], commit=False, name="one")
    reader = stream(runnel, subscribe="orders", startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert without_ids(end) == {"orders": {"0": 3}}
    assert places(reader, start, end) == []
    reader.stop()


def test_starting_offsets_by_timestamp(runnel: Broker) -> None:
    with runnel.client() as client:
        client.create_topic("orders", partitions=2, settings={"retention.ms": "-1"})
        for partition in (0, 1):
            for number in range(3):
                client.send("orders", b"x", partition=partition, timestamp_ms=1000 * (number + 1) + partition)

    def start(**options: object):
        reader = stream(runnel, subscribe="orders", **options)
        try:
            return reader.initialOffset()["orders"]
        finally:
            reader.stop()

    assert start(startingTimestamp=2000) == {"0": 1, "1": 1}
    assert start(startingTimestamp=2001) == {"0": 2, "1": 1}
    each = '{"orders": {"0": 1500, "1": 3001}}'
    assert start(startingOffsetsByTimestamp=each) == {"0": 1, "1": 2}
    with pytest.raises(BadOption, match=r"no record of orders-0 is as late.*Strategy to latest"):
        start(startingTimestamp=3001)
    assert start(startingTimestamp=3001, startingOffsetsByTimestampStrategy="latest") == {"0": 3, "1": 2}
    assert start(startingOffsets='{"orders": {"0": 2, "1": -2}}') == {"0": 2, "1": 0}
    with pytest.raises(BadOption, match="no offset for orders-1"):
        start(startingOffsets='{"orders": {"0": 2}}')
    with pytest.raises(BadOption, match="orders-2, which is not read"):
        start(startingOffsets='{"orders": {"0": 2, "1": 2, "2": 2}}')


def test_mistakes(runnel: Broker) -> None:
    with pytest.raises(BadOption, match="options that begin with ending do not apply to streams"):
        stream(runnel, subscribe="orders", endingOffsets="latest")
    with pytest.raises(UnknownTopic, match="topic 'orders' does not exist"):
        stream(runnel, subscribe="orders").initialOffset()
    with pytest.raises(BadOption, match="not a regular expression"):
        stream(runnel, subscribePattern="(").initialOffset()
    create(runnel)
    with pytest.raises(UnknownTopic, match="unknown partition orders-4"):
        stream(runnel, assign='{"orders": [0, 4]}').initialOffset()
    table = source(runnel, subscribe="orders", fetchTimeoutMs=300)
    table.options["kafka.bootstrap.servers"] = "127.0.0.1:1"
    with pytest.raises(BrokerUnreachable, match=r"no broker available at 127\.0\.0\.1:1"):
        table.streamReader(table.schema()).initialOffset()
    table.options["kafka.bootstrap.servers"] = "127.0.0.1:x"
    with pytest.raises(BadOption, match=r"kafka\.bootstrap\.servers"):
        table.streamReader(table.schema()).initialOffset()
