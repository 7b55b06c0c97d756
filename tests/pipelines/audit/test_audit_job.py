"""The audit on Spark: a valid log, and one that differs from its archive."""

import json
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from runnel.client.admin import Admin
from runnel.model.ids import TopicPartition
from runnel.pipelines.audit.archive import Archive, compare
from runnel.pipelines.audit.checker import PartitionResult
from runnel.pipelines.audit.counts import Counts, OverTime
from runnel.pipelines.audit.expectations import parse_expected
from runnel.pipelines.audit.findings import Level
from runnel.pipelines.audit.job import AuditOptions, run
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.progress import Progress
from runnel.pipelines.tables.catalog import open_catalog
from runnel.pipelines.tables.table import ensure_table
from runnel.testing import Broker
from tests.pipelines.audit.logs import flip_byte, segment_of

RECORDS = 90
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def broker():
    with Broker() as broker:
        with broker.client() as client:
            client.create_topic("orders", partitions=1)
            client.create_topic("refunds", partitions=2)
            for number in range(9):
                client.send_all("orders", [(b"key", b"order %d-%d" % (number, i)) for i in range(10)])
            client.send_all("refunds", [(b"%d" % number, b"refund") for number in range(20)])
        yield broker


def archive_orders(spark, broker, warehouse, days=3) -> "list[str]":
    """Write an archive in the layout of the archive job; returns the paths of its files."""
    rows = (
        spark.read.format("runnel")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", "orders")
        .load()
        .withColumnRenamed("timestampType", "timestamp_type")
        .withColumn("day", F.expr(f"date_add(DATE'2026-10-01', CAST(offset * {days} div {RECORDS} AS INT))"))
    )
    catalog = open_catalog(str(warehouse))
    table = ensure_table(
        catalog, "archive.orders", rows.schema, partition_by=["day"], sort_by=["partition", "offset"]
    )
    table.append(rows, properties={"runnel.topic": "orders", "runnel.archived.0": str(RECORDS)})
    return [file.file_path.removeprefix("file://") for file in table.files()]


def locations(findings):
    return sorted((str(finding.kind), finding.first_offset, finding.last_offset) for finding in findings)


def test_a_valid_broker_and_its_archive_pass(spark, broker, tmp_path):
    archive_orders(spark, broker, tmp_path / "warehouse")
    options = AuditOptions(
        bootstrap=broker.bootstrap_servers,
        archive=Archive(str(tmp_path / "warehouse")),
        expected=(parse_expected("orders=90"), parse_expected("refunds=20")),
        report=tmp_path / "report",
        offsets_per_task=40,
    )
    outcome = run(spark, options, Progress())
    assert outcome.faults == []
    assert outcome.is_sound and outcome.headline.startswith("Nothing is lost: 110 records in 3 partitions")
    assert [entry.rows for entry in outcome.archived] == [RECORDS, 0]
    written = json.loads((tmp_path / "report" / "report.json").read_text())
    assert written["is_sound"] and written["counts"]["records"] == 110
    page = (tmp_path / "report" / "index.html").read_text()
    assert "Nothing is lost" in page and "<script" not in page


def test_all_faults_are_reported(spark, broker, tmp_path):
    files = archive_orders(spark, broker, tmp_path / "warehouse")
    _, missing, damaged = sorted(files)
    Path(missing).unlink()
    with open(damaged, "r+b") as file:
        file.seek(4)
        file.write(bytes(100))
    with BrokerView(broker.bootstrap_servers) as view:
        (partition,) = view.partitions(["orders"])
        view.commit_group_offsets("billing", {partition: RECORDS + 5})
    broker.stop()
    changed = flip_byte(segment_of(broker.data_dir, "orders"), 85)
    broker.start()
    options = AuditOptions(
        bootstrap=broker.bootstrap_servers,
        topics=("orders",),
        archive=Archive(str(tmp_path / "warehouse")),
        expected=(parse_expected("orders:0=91"),),
        report=tmp_path / "report",
    )
    outcome = run(spark, options, Progress())
    assert not outcome.is_sound
    assert locations(outcome.faults) == [
        ("archive file missing or damaged", 30, 59),
        ("archive file missing or damaged", 60, 89),
        ("count differs", -1, -1),
        ("damaged batch", *changed),
        ("group position", RECORDS, RECORDS + 4),
        ("missing in archive", 30, 79),
    ]
    page = (tmp_path / "report" / "index.html").read_text()
    assert "orders-0 offsets 80–89" in page


def test_duplicated_changed_and_extra_rows_of_the_archive_are_reported(spark, broker, tmp_path):
    archive_orders(spark, broker, tmp_path / "warehouse")
    table = ensure_table(open_catalog(str(tmp_path / "warehouse")), "archive.orders", spark.range(0).schema)
    rows = table.read(spark)
    changed = rows.withColumn(
        "value", F.when(F.col("offset") == 12, F.lit(b"other")).otherwise(F.col("value"))
    )
    changed = changed.where("offset <> 20").unionByName(rows.where("offset BETWEEN 40 AND 44"))
    table.replace(changed.unionByName(rows.where("offset = 0").withColumn("offset", F.lit(500).cast("long"))))
    outcome = run(
        spark,
        AuditOptions(
            bootstrap=broker.bootstrap_servers,
            topics=("orders",),
            archive=Archive(str(tmp_path / "warehouse")),
        ),
        Progress(),
    )
    assert locations(outcome.faults) == [
        ("differs in archive", 12, 12),
        ("missing in archive", 20, 20),
        ("only in archive", 90, 500),
        ("twice in archive", 40, 44),
    ]


def test_a_log_and_an_archive_that_grow_during_the_audit_agree(spark, broker, tmp_path):
    archive_orders(spark, broker, tmp_path / "warehouse")
    with broker.client() as client:
        client.run(lambda cluster: Admin(cluster).delete_records({TopicPartition("orders", 0): 20}))
    # Checked before retention deleted the first records, and before the last were written and archived.
    checked = PartitionResult("orders", 0, 0, 50, Counts(), OverTime())
    archive = Archive(str(tmp_path / "warehouse"))
    archived = compare(spark, broker.bootstrap_servers, archive, "orders", [checked])
    assert [finding for finding in archived.findings if finding.level is Level.FAULT] == []


def test_a_stopped_brokers_folder_is_audited(spark, broker):
    broker.stop()
    outcome = run(spark, AuditOptions(folder=Path(broker.data_dir), topics=("orders",)), Progress())
    assert outcome.is_sound and outcome.counts.records == RECORDS
