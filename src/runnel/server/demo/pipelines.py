"""The demo of pipelines on Spark: two topics joined into a topic and a table, an audit and insights."""

import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.client.cluster import Cluster
from runnel.client.producer import Producer
from runnel.server.cli.output import CommandError
from runnel.server.demo.process import BrokerProcess
from runnel.server.demo.report import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.pipelines.declared.example.events import Event

PARTITIONS = 2
MALFORMED = 3
ROWS_SHOWN = 8
REPORTS = Path(".runnel") / "reports"


@dataclass(frozen=True, slots=True)
class Stage:
    """State shared by the steps."""

    report: Report
    broker: str
    directory: Path
    session: "SparkSession"
    events: "list[Event]"
    reports: Path = REPORTS

    @property
    def orders(self) -> int:
        """Well-formed orders, including the last one, which only advances the watermark."""
        return sum(event.topic == "orders" for event in self.events) - MALFORMED

    @property
    def payments(self) -> int:
        return sum(event.topic == "payments" for event in self.events)


def run_pipeline_tour(report: Report, order_count: int) -> None:
    """Run all steps against a broker in a temporary directory; the reports are kept."""
    from runnel.pipelines.declared.example.events import events
    from runnel.pipelines.session import spark_session

    with tempfile.TemporaryDirectory(prefix="runnel-demo-") as name:
        directory = Path(name)
        with BrokerProcess(directory / "data") as broker:
            broker.start()
            start_ms = time.time_ns() // 1_000_000 - 3_600_000
            generated = list(events(order_count, start_ms=start_ms, malformed=MALFORMED))
            produce(report, broker.address, generated)
            began_s = time.perf_counter()
            with (
                report.working("starting Spark"),
                spark_session("runnel demo", settings={"spark.sql.warehouse.dir": str(directory)}) as session,
            ):
                report.done(f"Spark {session.version} is up after {time.perf_counter() - began_s:.1f} s")
                run(Stage(report, broker.address, directory, session, generated))
            broker.stop()


def run(stage: Stage) -> None:
    """The steps that use Spark."""
    run_pipeline(stage)
    show_results(stage)
    audit(stage)
    insights(stage)


def produce(report: Report, broker: str, generated: "list[Event]") -> None:
    """Produce orders and payments."""
    from runnel.client import SyncClient

    report.step("Produce orders and payments")
    with SyncClient(broker) as client:
        for topic in ("orders", "payments"):
            client.create_topic(topic, partitions=PARTITIONS)
            sent = [event for event in generated if event.topic == topic]
            client.run(partial(send, sent))
            report.done(f"{len(sent):,} records to the topic [bold]{topic}[/bold]")
    report.say(f"{MALFORMED} of the orders are malformed JSON")


async def send(events: "list[Event]", cluster: Cluster) -> None:
    """Produce events with their original timestamps."""
    async with Producer(cluster, compression="lz4", linger_ms=5) as producer:
        for event in events:
            await producer.send(
                event.topic, event.value.encode(), key=event.key.encode(), timestamp_ms=event.timestamp_ms
            )
        await producer.flush()


def run_pipeline(stage: Stage) -> None:
    """Run the example of `runnel pipeline init` unchanged."""
    from runnel.pipelines.declared import job
    from runnel.pipelines.declared.example import example_text
    from runnel.pipelines.progress import Progress
    from runnel.server.cli.pipeline.validate import read_pipeline

    report = stage.report
    report.step("Join them with a pipeline and aggregate per minute")
    path = stage.directory / "pipeline.yaml"
    path.write_text(example_text().replace(":-.runnel/warehouse}", f":-{warehouse(stage)}}}"))
    declaration, findings = read_pipeline(path)
    if declaration is None:
        raise CommandError(f"demo failed: {'; '.join(finding.line(path.name) for finding in findings)}")
    began_s = time.perf_counter()
    with report.working("parsing, joining, windowing, writing"):
        options = job.DeclaredOptions(declaration, True, str(stage.directory / "checkpoint"), stage.broker)
        outcome = job.run(stage.session, options, Progress())
    seconds = time.perf_counter() - began_s
    report.done(f"[bold]runnel pipeline run pipeline.yaml --once[/bold] completed in {seconds:.0f} s")
    report.table(
        ["query", "batches", "records read"],
        [(query.name, query.batches, f"{query.records:,}") for query in outcome.queries],
    )


def warehouse(stage: Stage) -> str:
    return str(stage.directory / "warehouse")


def show_results(stage: Stage) -> None:
    """Verify and show the output topic, the table and the dead letters."""
    from runnel.client import SyncClient
    from runnel.pipelines.tables import SparkTable, open_catalog

    report = stage.report
    with SyncClient(stage.broker) as client:
        paid = client.read("paid-orders", committed_only=True)
        dead = client.read("orders.dead-letters", committed_only=True)
    # The last pair only advances the watermark and stays in an open window.
    expected = stage.payments
    if len({message.value for message in paid}) != len(paid) or len(paid) != expected:
        raise CommandError(f"demo failed: expected {expected} paid orders, got {len(paid)}")
    report.done(f"{len(paid):,} paid orders in the topic [bold]paid-orders[/bold], each exactly once")
    if len(dead) != MALFORMED:
        raise CommandError(f"demo failed: expected {MALFORMED} dead letters, got {len(dead)}")
    reason = dict(dead[0].headers).get("runnel.dead-letter.reason") or b""
    report.done(f"{len(dead)} dead letters in [bold]orders.dead-letters[/bold], the first: {reason.decode()}")
    table = SparkTable(open_catalog(warehouse(stage)), "shop.revenue").read(stage.session)
    rows = table.orderBy("minute", "country").collect()
    counted = sum(row["orders"] for row in rows)
    if counted != expected - 1:
        raise CommandError(f"demo failed: the table counts {counted} orders, not {expected - 1}")
    report.done(f"{len(rows)} rows in the Iceberg table [bold]shop.revenue[/bold]; the first of them:")
    report.table(
        ["minute", "country", "orders", "revenue"],
        [
            (f"{row['minute']:%H:%M}", row["country"], row["orders"], f"{row['revenue']:,.2f}")
            for row in rows[:ROWS_SHOWN]
        ],
    )


def audit(stage: Stage) -> None:
    """Verify every batch of the log."""
    from runnel.pipelines.audit import job
    from runnel.pipelines.audit.expectations import parse_expected
    from runnel.pipelines.progress import Progress

    stage.report.step("Audit the log")
    expected = (f"orders={stage.orders + MALFORMED}", f"payments={stage.payments}")
    options = job.AuditOptions(
        bootstrap=stage.broker,
        expected=tuple(map(parse_expected, expected)),
        report=stage.reports / "demo-audit",
    )
    with stage.report.working("reading every batch"):
        outcome = job.run(stage.session, options, Progress())
    if not outcome.is_sound:
        raise CommandError(f"demo failed: {outcome.headline}")
    stage.report.done(outcome.headline)
    stage.report.say(f"report: [bold]{outcome.report}[/bold]")


def insights(stage: Stage) -> None:
    """Analyse the traffic."""
    from runnel.pipelines.insights import job
    from runnel.pipelines.insights.status import status_of
    from runnel.pipelines.progress import Progress

    stage.report.step("Analyse the traffic")
    since_ms = stage.events[0].timestamp_ms
    options = job.InsightsOptions(
        bootstrap=stage.broker, since_ms=since_ms, report=stage.reports / "demo-insights"
    )
    with stage.report.working("aggregating"):
        outcome = job.run(stage.session, options, Progress())
    status = status_of(outcome)
    stage.report.done(f"{status.headline}: {status.detail}")
    stage.report.say(f"report: [bold]{outcome.report}[/bold]")
