"""The demo's second part: a pipeline on Spark from two topics to a topic and a table, then its proof."""

import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.client.cluster import Cluster
from runnel.client.producer import Producer
from runnel.server.cli.output import CannotDo
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
    """What all chapters share."""

    report: Report
    broker: str
    folder: Path
    session: "SparkSession"
    events: "list[Event]"
    reports: Path = REPORTS

    @property
    def orders(self) -> int:
        """Orders that can be read, the one included that only moves time on."""
        return sum(event.topic == "orders" for event in self.events) - MALFORMED

    @property
    def payments(self) -> int:
        return sum(event.topic == "payments" for event in self.events)


def tell_pipelines(report: Report, order_count: int) -> None:
    """From an empty broker to a table, an audited log, and two reports that stay."""
    from runnel.pipelines.declared.example.events import events
    from runnel.pipelines.session import spark_session

    with tempfile.TemporaryDirectory(prefix="runnel-demo-") as name:
        folder = Path(name)
        with BrokerProcess(folder / "data") as broker:
            broker.start()
            start_ms = time.time_ns() // 1_000_000 - 3_600_000
            made = list(events(order_count, start_ms=start_ms, malformed=MALFORMED))
            publish(report, broker.address, made)
            began_s = time.perf_counter()
            with (
                report.working("starting Spark"),
                spark_session("runnel demo", settings={"spark.sql.warehouse.dir": str(folder)}) as session,
            ):
                report.done(f"Spark {session.version} is up after {time.perf_counter() - began_s:.1f} s")
                run(Stage(report, broker.address, folder, session, made))
            broker.stop()


def run(stage: Stage) -> None:
    """All that needs Spark."""
    run_pipeline(stage)
    show_results(stage)
    audit(stage)
    insights(stage)


def publish(report: Report, broker: str, made: "list[Event]") -> None:
    """Orders and payments, as two systems would send them."""
    from runnel.client import SyncClient

    report.chapter("A shop publishes orders, and a bank the payments for them")
    with SyncClient(broker) as client:
        for topic in ("orders", "payments"):
            client.create_topic(topic, partitions=PARTITIONS)
            sent = [event for event in made if event.topic == topic]
            client.run(partial(send, sent))
            report.done(f"{len(sent):,} records to the topic [bold]{topic}[/bold]")
    report.say(f"{MALFORMED} of the orders are no proper JSON: systems do that")


async def send(events: "list[Event]", cluster: Cluster) -> None:
    """At the time at which they happened, as a system that was away for a while would."""
    async with Producer(cluster, compression="lz4", linger_ms=5) as producer:
        for event in events:
            await producer.send(
                event.topic, event.value.encode(), key=event.key.encode(), timestamp_ms=event.timestamp_ms
            )
        await producer.flush()


def run_pipeline(stage: Stage) -> None:
    """The example that `runnel pipeline init` writes, as it is."""
    from runnel.pipelines.declared import job
    from runnel.pipelines.declared.example import example_text
    from runnel.pipelines.progress import Progress
    from runnel.server.cli.pipeline.validate import read_pipeline

    report = stage.report
    report.chapter("A pipeline joins them, and sums up each minute")
    path = stage.folder / "pipeline.yaml"
    path.write_text(example_text().replace(":-.runnel/warehouse}", f":-{warehouse(stage)}}}"))
    declaration, findings = read_pipeline(path)
    if declaration is None:
        raise CannotDo(f"the demo went wrong: {'; '.join(finding.line(path.name) for finding in findings)}")
    began_s = time.perf_counter()
    with report.working("parsing, joining, windowing, writing"):
        options = job.DeclaredOptions(declaration, True, str(stage.folder / "checkpoint"), stage.broker)
        outcome = job.run(stage.session, options, Progress())
    seconds = time.perf_counter() - began_s
    report.done(f"[bold]runnel pipeline run pipeline.yaml --once[/bold] was done in {seconds:.0f} s")
    report.table(
        ["query", "batches", "records read"],
        [(query.name, query.batches, f"{query.records:,}") for query in outcome.queries],
    )


def warehouse(stage: Stage) -> str:
    return str(stage.folder / "warehouse")


def show_results(stage: Stage) -> None:
    """What is in the topic, in the table, and among the dead letters."""
    from runnel.client import SyncClient
    from runnel.pipelines.tables import SparkTable, open_catalog

    report = stage.report
    with SyncClient(stage.broker) as client:
        paid = client.read("paid-orders", committed_only=True)
        dead = client.read("orders.dead-letters", committed_only=True)
    # The last pair only moves time on, and time does not move past it.
    expected = stage.payments
    if len({message.value for message in paid}) != len(paid) or len(paid) != expected:
        raise CannotDo(f"the demo went wrong: {expected} paid orders were expected, {len(paid)} came")
    report.done(f"{len(paid):,} paid orders in the topic [bold]paid-orders[/bold], each exactly once")
    if len(dead) != MALFORMED:
        raise CannotDo(f"the demo went wrong: {MALFORMED} dead letters were expected, {len(dead)} came")
    reason = dict(dead[0].headers).get("runnel.dead-letter.reason") or b""
    report.done(f"{len(dead)} dead letters in [bold]orders.dead-letters[/bold]; one says: {reason.decode()}")
    table = SparkTable(open_catalog(warehouse(stage)), "shop.revenue").read(stage.session)
    rows = table.orderBy("minute", "country").collect()
    counted = sum(row["orders"] for row in rows)
    if counted != expected - 1:
        raise CannotDo(f"the demo went wrong: the table counts {counted} orders, not {expected - 1}")
    report.done(f"{len(rows)} rows in the Iceberg table [bold]shop.revenue[/bold]; the first of them:")
    report.table(
        ["minute", "country", "orders", "revenue"],
        [
            (f"{row['minute']:%H:%M}", row["country"], row["orders"], f"{row['revenue']:,.2f}")
            for row in rows[:ROWS_SHOWN]
        ],
    )


def audit(stage: Stage) -> None:
    """Every batch is read and checked."""
    from runnel.pipelines.audit import job
    from runnel.pipelines.audit.expectations import parse_expected
    from runnel.pipelines.progress import Progress

    stage.report.chapter("An audit proves that nothing is lost")
    expected = (f"orders={stage.orders + MALFORMED}", f"payments={stage.payments}")
    options = job.AuditOptions(
        bootstrap=stage.broker,
        expected=tuple(map(parse_expected, expected)),
        report=stage.reports / "demo-audit",
    )
    with stage.report.working("reading every batch"):
        outcome = job.run(stage.session, options, Progress())
    if not outcome.is_sound:
        raise CannotDo(f"the demo went wrong: {outcome.headline}")
    stage.report.done(outcome.headline)
    stage.report.say(f"report: [bold]{outcome.report}[/bold]")


def insights(stage: Stage) -> None:
    """How the traffic went."""
    from runnel.pipelines.insights import job
    from runnel.pipelines.insights.words import verdict_of
    from runnel.pipelines.progress import Progress

    stage.report.chapter("Insights tell how the traffic went")
    since_ms = stage.events[0].timestamp_ms
    options = job.InsightsOptions(
        bootstrap=stage.broker, since_ms=since_ms, report=stage.reports / "demo-insights"
    )
    with stage.report.working("summing up"):
        outcome = job.run(stage.session, options, Progress())
    verdict = verdict_of(outcome)
    stage.report.done(f"{verdict.headline}: {verdict.detail}")
    stage.report.say(f"report: [bold]{outcome.report}[/bold]")
