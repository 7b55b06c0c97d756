"""A topic is restored from its archive or from a data directory, and consumers resume."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from runnel.model.ids import TopicPartition
from runnel.pipelines.archive.layout import GROUPS, groups_text, open_archive
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.errors import BadOption, PipelineError, TargetInUse, UnknownTopic
from runnel.pipelines.progress import Progress
from runnel.pipelines.restore.groups import GroupMove
from runnel.pipelines.restore.job import RestoreOptions, RestoreOutcome, run
from runnel.pipelines.tables import open_catalog
from runnel.testing import Broker
from tests.pipelines.archive.steps import Steps

pytestmark = pytest.mark.timeout(300)  # the first test of a process waits for Spark to start

HOUR_MS = 3_600_000
NOON_MS = 1_750_000_000_000


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(str(tmp_path / "warehouse")) as catalog:
        yield catalog


@pytest.fixture
def orders(runnel: Broker) -> Broker:
    """Three partitions, the last one empty; ten records an hour apart in turn, one of them late."""
    with runnel.client() as client:
        client.create_topic("orders", partitions=3, settings={"retention.ms": "-1"})
        for number in range(10):
            client.send(
                "orders",
                b"v%d" % number,
                key=b"k%d" % number,
                partition=number % 2,
                timestamp_ms=NOON_MS + (number - 5) * HOUR_MS,
                headers=[("own", b"h")],
            )
        client.send("orders", None, key=b"late", partition=0, timestamp_ms=NOON_MS - 30 * HOUR_MS)
    return runnel


def restore(spark, broker: Broker, place: Path | None, **more) -> RestoreOutcome:
    warehouse = None if place is None else str(place / "warehouse")
    options = RestoreOptions(bootstrap=broker.bootstrap_servers, topic="orders", warehouse=warehouse, **more)
    return run(spark, options, Progress())


def contents(broker: Broker, topic: str) -> list[tuple[int, bytes | None, bytes | None, int]]:
    with broker.client() as client:
        messages = client.read(topic, committed_only=True)
    return sorted(
        ((message.partition, message.key, message.value, message.timestamp_ms) for message in messages),
        key=repr,
    )


def test_a_point_in_time_gives_exactly_the_records_up_to_it_and_groups_resume_there(
    spark, catalog, orders, tmp_path
):
    with BrokerView(orders.bootstrap_servers) as broker:
        places = {TopicPartition("orders", 0): 2, TopicPartition("orders", 1): 5}
        broker.commit_group_offsets("readers", places)
        Steps(spark, catalog, orders.bootstrap_servers).batch(0)
        everything = contents(orders, "orders")
        outcome = restore(spark, orders, tmp_path, target="again", until_ms=NOON_MS, groups=("readers",))
        assert contents(orders, "again") == [row for row in everything if row[3] <= NOON_MS]
        # v0, v2, v4 and the late one; v1, v3, v5: the record at that very moment is in.
        assert [(part.partition, part.records) for part in outcome.partitions] == [(0, 4), (1, 3)]
        assert len(broker.topic("again").partitions) == 3
        assert broker.topic_settings("again")["retention.ms"] == "-1"
        # What the groups had read before, they have read; from the rest, nothing is left out.
        committed = broker.group_offsets("readers")
        with orders.client() as client:
            rest = client.read("again", partitions=[0], offset=committed[TopicPartition("again", 0)])
            assert [message.value for message in rest] == [b"v4", None]
            ends = broker.latest_offsets([TopicPartition("again", 1)])
        assert committed[TopicPartition("again", 1)] == ends[TopicPartition("again", 1)]
        assert outcome.groups[0] == GroupMove("readers", 0, 2, 2)
        # Run again, as after a crash at the very end, it changes nothing.
        again = restore(spark, orders, tmp_path, target="again", until_ms=NOON_MS, groups=("readers",))
        assert again.records == 0
        assert broker.group_offsets("readers") == committed
        # The omitted records are between restored ones, so they cannot be added later.
        with pytest.raises(BadOption, match=f"again-0 was restored up to @{NOON_MS}, and not up to its end"):
            restore(spark, orders, tmp_path, target="again")


def test_offset_limits_per_partition_and_topics_with_other_records(spark, catalog, orders, tmp_path):
    Steps(spark, catalog, orders.bootstrap_servers).batch(0)
    with pytest.raises(TargetInUse, match="orders-0 has records"):
        restore(spark, orders, tmp_path)
    with pytest.raises(UnknownTopic, match="archived topics: orders"):
        run(
            spark,
            RestoreOptions(
                bootstrap=orders.bootstrap_servers, topic="payments", warehouse=str(tmp_path / "warehouse")
            ),
            Progress(),
        )
    with pytest.raises(BadOption, match="no committed offset of orders"):
        restore(spark, orders, tmp_path, target="again", groups=("unknown",))
    with orders.client() as client:
        client.create_topic("small", partitions=1)
    with pytest.raises(BadOption, match="has 1 partitions, and orders had 3"):
        restore(spark, orders, tmp_path, target="small")
    outcome = restore(spark, orders, tmp_path, target="again", until_offsets={0: 2, 1: 0})
    assert [row[2] for row in contents(orders, "again")] == [b"v0", b"v2"]
    assert outcome.records == 2


def test_committed_offsets_are_restored_from_the_archive(spark, catalog, orders, tmp_path):
    Steps(spark, catalog, orders.bootstrap_servers).batch(0)
    table = open_archive(catalog, "archive", "orders")
    table.set_properties({GROUPS: groups_text({"readers": {0: 1}})})
    with Broker() as new:
        outcome = restore(spark, new, tmp_path, groups=("readers",))
    assert outcome.groups == [GroupMove("readers", 0, 1, 1)]


def test_a_lost_broker_is_restored_from_its_folder_with_its_groups(spark, orders, tmp_path):
    with BrokerView(orders.bootstrap_servers) as broker:
        broker.commit_group_offsets("readers", {TopicPartition("orders", 1): 3})
    everything = contents(orders, "orders")
    orders.stop()
    with open(Path(orders.data_dir, "orders-1", f"{0:020d}.log"), "ab") as file:
        file.write(b"torn")
    with Broker() as new:
        outcome = restore(spark, new, None, folder=orders.data_dir, groups=("readers",))
        assert contents(new, "orders") == everything
        assert outcome.is_fine
        assert any("orders-1 ends with 4 bytes" in note for note in outcome.notes)
        assert outcome.groups == [GroupMove("readers", 1, 3, 3)]
        with BrokerView(new.bootstrap_servers) as broker:
            assert broker.group_offsets("readers") == {TopicPartition("orders", 1): 3}
            # The group reads on, in offsets of its own: those are no old ones, also if the name is the same.
            broker.commit_group_offsets("readers", {TopicPartition("orders", 1): 4})
            again = restore(spark, new, None, folder=orders.data_dir, groups=("readers",))
            assert again.groups == []
            assert any("of orders-1 since it was restored" in note for note in again.notes)
            assert broker.group_offsets("readers") == {TopicPartition("orders", 1): 4}
        with pytest.raises(PipelineError, match="no source is set"):
            restore(spark, new, None)
