"""Where old offsets are now, told from the records themselves."""

import pytest

from runnel.client.transactional import TransactionalProducer
from runnel.model.ids import TopicPartition
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.restore.trail import find_trail, old_offset, translate
from tests.pipelines.restore.steps import restore_headers

PLACE = TopicPartition("new", 0)


@pytest.fixture
def broker(runnel):
    with BrokerView(runnel.bootstrap_servers) as view:
        view.create_topic("new", partitions=1)
        yield view


def write(broker: BrokerView, *, old: list[int | None], is_committed: bool = True) -> None:
    """Records restored from these offsets, others for None, in one transaction."""

    async def send(cluster) -> None:
        async with TransactionalProducer(cluster, "restore") as producer:
            await producer.begin()
            for offset in old:
                headers = [] if offset is None else restore_headers("orders", 0, offset, 1)
                await producer.send("new", b"v", partition=0, headers=headers)
            await producer.flush()
            await (producer.commit() if is_committed else producer.abort())

    broker.run(send)


def test_headers_of_another_topic_or_of_nobody_are_no_trail():
    headers = restore_headers("orders", 1, 17, 99)
    assert dict(headers)["runnel.restore.partition"] == b"1"
    assert old_offset(headers, "orders") == 17
    assert old_offset(headers, "payments") is None
    assert old_offset([("a", b"1")], "orders") is None
    # Restored twice: where it came from last counts.
    assert old_offset([*headers, *restore_headers("copy", 1, 3, 99)], "copy") == 3


def test_the_end_of_a_trail_is_found_behind_strangers_and_aborted_records(broker, monkeypatch):
    monkeypatch.setattr("runnel.pipelines.restore.trail.WINDOW_OFFSETS", 2)
    assert broker.run(lambda cluster: find_trail(cluster, PLACE, "orders")).has_records is False
    write(broker, old=[4, 9])
    write(broker, old=[10, 11], is_committed=False)
    write(broker, old=[None] * 12)
    trail = broker.run(lambda cluster: find_trail(cluster, PLACE, "orders"))
    assert (trail.has_records, trail.last_offset) == (True, 9)
    other = broker.run(lambda cluster: find_trail(cluster, PLACE, "payments"))
    assert (other.has_records, other.last_offset) == (True, None)


def test_old_offsets_become_those_of_the_first_record_at_or_after_them(broker):
    write(broker, old=[3, 5, 9])  # new 0, 1, 2 and a marker
    write(broker, old=[10], is_committed=False)
    write(broker, old=[None, 12, 20])  # new 6, 7, 8 and a marker
    expected = {0: 0, 3: 0, 4: 1, 5: 1, 6: 2, 9: 2, 10: 7, 12: 7, 13: 8, 20: 8, 21: 10, 99: 10}
    found = {
        old: broker.run(lambda cluster, old=old: translate(cluster, PLACE, "orders", old)) for old in expected
    }
    assert found == expected
