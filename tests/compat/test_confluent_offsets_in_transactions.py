"""confluent-kafka (librdkafka): offset commits in transactions."""

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.compat.librdkafka import send, take

TIMEOUT_S = 20


def a_producer(bootstrap: str, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(TIMEOUT_S)
    return producer


def a_consumer(bootstrap: str, group: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    return consumer


def committed(bootstrap: str, group: str, topic: str) -> int:
    """The stable committed offset of the group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])]
    (reply,) = admin.list_consumer_group_offsets(asked, require_stable=True).values()
    (partition,) = reply.result(TIMEOUT_S).topic_partitions
    return int(partition.offset)


def test_offsets_are_committed_with_the_transaction(bootstrap, topic) -> None:
    send(bootstrap, topic, [b"%d" % number for number in range(10)])
    producer = a_producer(bootstrap, f"x-{topic}")
    consumer = a_consumer(bootstrap, f"g-{topic}", topic)
    assert len(take(consumer, 10)) == 10
    for end, expected in ((producer.abort_transaction, -1001), (producer.commit_transaction, 10)):
        producer.begin_transaction()
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
        end(TIMEOUT_S)
        assert committed(bootstrap, f"g-{topic}", topic) == expected
    consumer.close()


def test_a_fenced_producer_commits_no_offsets(bootstrap, topic) -> None:
    send(bootstrap, topic, [b"0", b"1"])
    zombie = a_producer(bootstrap, f"x-{topic}")
    consumer = a_consumer(bootstrap, f"g-{topic}", topic)
    assert len(take(consumer, 2)) == 2
    offsets = consumer.position(consumer.assignment())
    zombie.begin_transaction()
    zombie.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
    heir = a_producer(bootstrap, f"x-{topic}")
    assert committed(bootstrap, f"g-{topic}", topic) == -1001
    heir.begin_transaction()
    heir.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
    heir.commit_transaction(TIMEOUT_S)
    assert committed(bootstrap, f"g-{topic}", topic) == 2
    consumer.close()
