"""confluent-kafka (librdkafka) with the consumer protocol (KIP-848)."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, KafkaError, Producer

from tests.compat.librdkafka import TIMEOUT_S, poll_until, send, take


def member(bootstrap: str, group: str, *topics: str, protocol: str = "consumer", **config: Any) -> Consumer:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
        **{key.replace("_", "."): value for key, value in config.items()},
    }
    opened = Consumer(settings)
    opened.subscribe(list(topics))
    return opened


def shares(*members: Consumer) -> list[int]:
    return [len(one.assignment()) for one in members]


def close(*members: Consumer) -> None:
    for one in members:
        one.close()


def test_partitions_are_rebalanced_when_members_join_and_leave(bootstrap, make_topic, group) -> None:
    topic = make_topic(partitions=6)
    first = member(bootstrap, group, topic)
    poll_until([first], lambda: shares(first) == [6])
    second, third = (member(bootstrap, group, topic) for _ in range(2))
    poll_until([first, second, third], lambda: shares(first, second, third) == [2, 2, 2])
    owned = [place.partition for one in (first, second, third) for place in one.assignment()]
    assert sorted(owned) == list(range(6))
    kept = {place.partition for place in first.assignment()}
    second.close()
    poll_until([first, third], lambda: shares(first, third) == [3, 3])
    assert kept <= {place.partition for place in first.assignment()}
    close(first, third)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_requested_server_side_assignor_is_used(bootstrap, make_topic, group, admin, assignor) -> None:
    topics = sorted([make_topic(partitions=3), make_topic(partitions=3)])
    members = [member(bootstrap, group, *topics, group_remote_assignor=assignor) for _ in range(2)]
    wanted = {"uniform": [3, 3], "range": [2, 4]}[assignor]
    poll_until(members, lambda: sorted(shares(*members)) == wanted)
    described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    assert described.partition_assignor == assignor
    close(*members)


def test_a_group_resumes_where_it_committed(bootstrap, topic, group) -> None:
    send(bootstrap, topic, [b"%d" % number for number in range(20)])
    first = member(bootstrap, group, topic)
    messages = take(first, 8)
    first.commit(message=messages[-1], asynchronous=False)
    first.close()
    second = member(bootstrap, group, topic)
    assert [message.offset() for message in take(second, 12)] == list(range(8, 20))
    second.close()


def test_a_pattern_subscription_matches_new_topics(bootstrap, make_topic, group, admin) -> None:
    first = make_topic(partitions=2)
    reader = member(bootstrap, group, f"^{first}.*")
    poll_until([reader], lambda: shares(reader) == [2])
    send(bootstrap, f"{first}-more", [b"v"])
    poll_until([reader], lambda: {place.topic for place in reader.assignment()} == {first, f"{first}-more"})
    reader.close()


def test_a_static_member_keeps_its_partitions_across_a_restart(bootstrap, make_topic, group) -> None:
    topic = make_topic(partitions=4)

    def stay(name: str) -> Consumer:
        return member(bootstrap, group, topic, group_instance_id=name)

    one, two = stay("one"), stay("two")
    poll_until([one, two], lambda: shares(one, two) == [2, 2])
    before = sorted(place.partition for place in two.assignment())
    two.close()
    again = stay("two")
    poll_until([one, again], lambda: shares(one, again) == [2, 2])
    assert sorted(place.partition for place in again.assignment()) == before
    close(one, again)


def test_a_second_static_member_with_the_same_instance_id_is_rejected(bootstrap, topic, group) -> None:
    one = member(bootstrap, group, topic, group_instance_id="same")
    poll_until([one], lambda: shares(one) == [1])
    other = member(bootstrap, group, topic, group_instance_id="same")
    errors: list[KafkaError] = []

    def is_refused() -> bool:
        message = other.poll(0.1)
        if message is not None and message.error() is not None:
            errors.append(message.error())
        return bool(errors)

    poll_until([one], is_refused)
    assert errors[0].code() in (KafkaError.UNRELEASED_INSTANCE_ID, KafkaError._FATAL)
    assert shares(one) == [1]
    close(one, other)


def test_the_group_is_listed_and_described(bootstrap, make_topic, group, admin) -> None:
    topic = make_topic(partitions=3)
    one = member(bootstrap, group, topic, client_id="client-1")
    poll_until([one], lambda: shares(one) == [3])

    def described() -> Any:
        return admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)

    poll_until([one], lambda: described().state == ConsumerGroupState.STABLE)
    seen = described()
    assert (seen.type, len(seen.members)) == (ConsumerGroupType.CONSUMER, 1)
    assert seen.members[0].client_id == "client-1"
    assert {place.partition for place in seen.members[0].assignment.topic_partitions} == {0, 1, 2}
    listed = admin.list_consumer_groups().result(TIMEOUT_S).valid
    assert [found.type for found in listed if found.group_id == group] == [ConsumerGroupType.CONSUMER]
    one.close()
    until(lambda: described().state == ConsumerGroupState.EMPTY)
    admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)


@pytest.mark.parametrize("protocols", [("classic", "consumer"), ("consumer", "classic")])
def test_members_of_both_protocols_share_a_group(bootstrap, make_topic, group, protocols) -> None:
    topic = make_topic(partitions=4)
    elder, younger = protocols
    cooperative = {"partition_assignment_strategy": "cooperative-sticky", "session_timeout_ms": 6000}

    def of(protocol: str) -> Consumer:
        extra = cooperative if protocol == "classic" else {}
        return member(bootstrap, group, topic, protocol=protocol, **extra)

    first = of(elder)
    poll_until([first], lambda: shares(first) == [4])
    second = of(younger)
    poll_until([first, second], lambda: shares(first, second) == [2, 2])
    send(bootstrap, topic, [b"%d" % number for number in range(40)])
    seen: set[bytes] = set()
    deadline = time.monotonic() + TIMEOUT_S
    while len(seen) < 40:
        assert time.monotonic() < deadline, f"only {len(seen)} of 40 records came"
        seen |= {message.value() for one in (first, second) for message in one.consume(20, timeout=0.2)}
    first.close()
    poll_until([second], lambda: shares(second) == [4])
    second.close()


def test_members_commit_offsets_in_transactions(bootstrap, topic, group, admin) -> None:
    send(bootstrap, topic, [b"%d" % number for number in range(6)])
    one = member(bootstrap, group, topic)
    take(one, 6)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"x-{group}"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    positions = one.position(one.assignment())
    producer.send_offsets_to_transaction(positions, one.consumer_group_metadata(), TIMEOUT_S)
    producer.commit_transaction(TIMEOUT_S)
    assert [place.offset for place in one.committed(one.assignment(), TIMEOUT_S)] == [6]
    one.close()


def until(condition: Callable[[], bool]) -> None:
    poll_until([], condition)
