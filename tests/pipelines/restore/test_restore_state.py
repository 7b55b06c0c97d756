"""Translation of offsets, from the headers of restored records."""

import asyncio

import pytest

from runnel.client.transactional import TransactionalProducer
from runnel.model.ids import TopicPartition
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.errors import TargetInUse
from runnel.pipelines.restore.restore_state import (
    Origin,
    RestoreState,
    await_stable_end,
    find_restore_state,
    limit,
    origin,
    translate,
    visible_restore_state,
)
from tests.pipelines.restore.steps import end_it, leave_open, restore_headers

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


def look(broker: BrokerView, topic: str = "orders") -> RestoreState:
    async def find(cluster) -> RestoreState:
        return await find_restore_state(cluster, PLACE, topic, await await_stable_end(cluster, PLACE))

    return broker.run(find)


def test_headers_of_other_restores_are_ignored():
    headers = restore_headers("orders", 1, 17, 99, "@5")
    assert dict(headers)["runnel.restore.partition"] == b"1"
    assert origin(headers, "orders") == Origin(17, "@5")
    assert origin(headers, "payments") is None
    assert origin([("a", b"1")], "orders") is None
    # Restored twice: where it came from last counts, and nothing of the time before.
    assert origin([*headers, *restore_headers("copy", 1, 3, 99)], "copy") == Origin(3, None)


def test_a_limit_is_of_one_partition():
    assert limit(0, None, {}) is None
    assert limit(0, 5, {1: 7}) == "@5"
    assert limit(1, None, {1: 7}) == "1:7"
    assert limit(1, 0, {1: 7}) == "@0 1:7"


def test_the_last_restored_record_is_found_before_other_and_aborted_records(broker, monkeypatch):
    monkeypatch.setattr("runnel.pipelines.restore.restore_state.WINDOW_OFFSETS", 2)
    assert look(broker).has_records is False
    write(broker, old=[4, 9])
    write(broker, old=[10, 11], is_committed=False)
    write(broker, old=[None] * 12)
    assert look(broker) == RestoreState(True, 9)
    assert look(broker, "payments") == RestoreState(True, None)


def test_a_copied_restored_record_is_not_the_last_restored_record(broker):
    write(broker, old=[4, 9])
    write(broker, old=[4])
    assert look(broker).last_offset == 9


def test_an_open_transaction_hides_what_is_behind_it_until_it_ends(broker, monkeypatch):
    write(broker, old=[4])
    broker.run(lambda cluster: leave_open(cluster, "new"))
    write(broker, old=[9])
    in_sight = broker.run(lambda cluster: visible_restore_state(cluster, PLACE, "orders"))
    assert in_sight.last_offset == 4
    # Whether what cannot be seen is in use is unknown.
    assert broker.run(lambda cluster: visible_restore_state(cluster, PLACE, "payments")) == RestoreState(
        False, None
    )
    with monkeypatch.context() as patched:
        patched.setattr("runnel.pipelines.restore.restore_state.STABLE_TIMEOUT_S", 0.2)
        with pytest.raises(TargetInUse, match="runnel txn list"):
            look(broker)

    async def wait_for_its_end(cluster) -> int:
        waiting = asyncio.create_task(await_stable_end(cluster, PLACE))
        await end_it(cluster)
        return await waiting

    end = broker.run(wait_for_its_end)
    assert end == broker.latest_offsets([PLACE])[PLACE]
    assert look(broker).last_offset == 9


def test_old_offsets_become_those_of_the_first_record_at_or_after_them(broker):
    write(broker, old=[3, 5, 9])  # new 0, 1, 2 and a marker
    write(broker, old=[10], is_committed=False)
    write(broker, old=[None, 12, 20])  # new 6, 7, 8 and a marker
    expected = {0: 0, 3: 0, 4: 1, 5: 1, 6: 2, 9: 2, 10: 7, 12: 7, 13: 8, 20: 8, 21: 10, 99: 10}
    found = {
        old: broker.run(lambda cluster, old=old: translate(cluster, PLACE, "orders", old)) for old in expected
    }
    assert found == expected
