"""The archive as a job: from run to run, by its checkpoint and by its tables."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from runnel.client.cluster import Cluster
from runnel.client.transactional import TransactionalProducer
from runnel.model.ids import TopicPartition
from runnel.pipelines.archive import job
from runnel.pipelines.archive.job import ArchiveOptions, run
from runnel.pipelines.archive.layout import archived_groups, archived_offsets, open_archive, read_offsets
from runnel.pipelines.archive.starting import behind, checkpointed_offsets, starting_offsets
from runnel.pipelines.audit.archive import Archive
from runnel.pipelines.audit.job import AuditOptions
from runnel.pipelines.audit.job import run as audit
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.errors import BadCheckpoint, BadOption
from runnel.pipelines.progress import Progress
from runnel.pipelines.tables import open_catalog

pytestmark = pytest.mark.timeout(300)  # the first test of a process waits for Spark to start

DAY_MS = 24 * 60 * 60 * 1000
A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def send(broker, *values: bytes, **more) -> None:
    with broker.client() as client:
        for value in values:
            client.send("orders", value, partition=0, **more)


async def _aborted(bootstrap: str) -> None:
    """An aborted record and its marker: two offsets that are never archived."""
    async with Cluster(bootstrap) as cluster, TransactionalProducer(cluster, "t") as producer:
        await producer.begin()
        await producer.send("orders", b"no", partition=0)
        await producer.flush()
        await producer.abort()


def test_runs_resume_from_checkpoint_or_tables_and_maintain_the_tables(spark, runnel, tmp_path, monkeypatch):
    options = ArchiveOptions(
        bootstrap=runnel.bootstrap_servers,
        warehouse=str(tmp_path / "warehouse"),
        checkpoint=str(tmp_path / "checkpoint"),
        topics=("orders",),
    )
    with runnel.client() as client:
        client.create_topic("orders", partitions=1, settings={"retention.ms": "-1"})

    def archive(**changes):
        (topic,) = run(spark, replace(options, **changes), Progress()).topics
        return topic

    def offsets() -> list[int]:
        with open_catalog(options.warehouse) as catalog:
            table = open_archive(catalog, "archive", "orders")
            return sorted(row.offset for row in table.read(spark).select("offset").collect())

    with BrokerView(runnel.bootstrap_servers) as broker:
        broker.commit_group_offsets("readers", {A: 1})
    send(runnel, b"old", timestamp_ms=DAY_MS)
    send(runnel, b"a")
    # Several batches, with upkeep after each of them.
    monkeypatch.setattr(job, "BATCHES_PER_UPKEEP", 1)
    monkeypatch.setattr(job, "SMALL_FILES_MIN", 2)
    assert archive(records_per_batch=1).rows == 2
    monkeypatch.undo()
    # Without its checkpoint, it resumes at the end of the tables.
    shutil.rmtree(options.checkpoint)
    send(runnel, b"b")
    asyncio.run(_aborted(runnel.bootstrap_servers))
    topic = archive(retention_days=30, is_compacting=True)
    assert (topic.rows, topic.rows_removed, topic.files_merged, topic.next_offsets) == (1, 1, 2, {0: 3})
    assert offsets() == [1, 2]
    with open_catalog(options.warehouse) as catalog:
        properties = open_archive(catalog, "archive", "orders").properties()
    assert archived_groups(properties) == {"readers": {0: 1}}
    assert (archived_offsets(properties), read_offsets(properties)) == ({0: 3}, {0: 5})
    # What retention took is not missed by an audit, though the log still has it.
    check = AuditOptions(bootstrap=runnel.bootstrap_servers, archive=Archive(options.warehouse))
    assert audit(spark, check, Progress()).faults == []
    # Without its tables, the checkpoint would leave a gap.
    shutil.rmtree(options.warehouse)
    with pytest.raises(BadCheckpoint, match="remove the checkpoint"):
        archive()


def test_topics_are_required(spark, tmp_path):
    with pytest.raises(BadOption, match="no topics to archive"):
        run(
            spark,
            ArchiveOptions(bootstrap="127.0.0.1:1", warehouse=str(tmp_path), checkpoint=str(tmp_path)),
            Progress(),
        )


def test_it_begins_where_tables_end_and_at_the_beginning_of_what_has_none():
    assert starting_offsets([A, B], {A: 7}) == '{"orders": {"0": 7, "1": -2}}'
    assert starting_offsets([], {}) == "earliest"


def test_what_a_checkpoint_passed_over_is_found(tmp_path: Path):
    assert checkpointed_offsets(str(tmp_path)) == {}
    for name in ("commits", "offsets"):
        (tmp_path / name).mkdir()
    (tmp_path / "offsets" / "9").write_text('v1\n{}\n{"orders": {"0": 4, "1": 9}}')
    (tmp_path / "offsets" / "10").write_text('v1\n{}\n{"orders": {"0": 5, "1": 11}}')
    assert checkpointed_offsets(str(tmp_path)) == {}
    # Of a batch without its commit, nothing is known.
    (tmp_path / "commits" / "9").write_text("v1\n{}")
    (tmp_path / "commits" / ".9.crc").write_text("")
    found = checkpointed_offsets(str(tmp_path))
    assert found == {A: 4, B: 9}
    assert behind(found, {A: 4, B: 3}) == {B: (3, 9)}
    (tmp_path / "offsets" / "9").write_text("damaged")
    with pytest.raises(BadCheckpoint):
        checkpointed_offsets(str(tmp_path))
