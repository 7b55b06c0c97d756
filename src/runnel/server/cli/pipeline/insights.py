"""`runnel pipeline run insights`: analyse traffic, lag and growth."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.server.cli.pipeline.options import JobOptions, job

if TYPE_CHECKING:
    from runnel.pipelines.insights.job import InsightsOutcome

HISTORY = Path(".runnel") / "insights" / "history.jsonl"

Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", help="Topic. Repeatable. Default: all.", metavar="TOPIC"),
]
Since = Annotated[
    str,
    typer.Option(
        "--since", metavar="TIME", help="Records at or after this time: an age such as 24h, a time, or all."
    ),
]
Report = Annotated[
    Path | None,
    typer.Option("--report", metavar="DIR", help="Report directory. Default: .runnel/reports/insights-TIME."),
]
History = Annotated[
    Path,
    typer.Option("--history", metavar="FILE", help="File in which runs record disk usage and lag."),
]


@job(streams=False)
def insights(
    options: JobOptions,
    topics: Topics = None,
    since: Since = "24h",
    report: Report = None,
    history: History = HISTORY,
) -> None:
    """Report throughput, record sizes, partition skew, consumer lag and the growth of the logs.

    Includes hot keys, a recommended number of partitions, and an estimate of when the disks are full. Writes
    an HTML report and the same as JSON. Repeated runs extend the history.

    Example: runnel pipeline run insights

    Example: runnel pipeline run insights --topic orders --since 7d --report insights
    """
    import time

    from runnel.pipelines.insights.job import InsightsOptions, run
    from runnel.pipelines.report.writing import report_folder
    from runnel.server.cli.options import parse_moment_ms
    from runnel.server.cli.pipeline.running import run_job

    now_ms = round(time.time() * 1000)
    chosen = InsightsOptions(
        bootstrap=options.bootstrap,
        properties=options.properties,
        topics=tuple(topics or ()),
        since_ms=None if since == "all" else parse_moment_ms(since, now_ms),
        report=report or report_folder("insights", now_ms),
        history=history,
    )
    run_job("insights", options, lambda session, progress: run(session, chosen, progress), show=_show)


def _show(outcome: "InsightsOutcome") -> None:
    from runnel.pipelines.insights.status import disk_status, status_of
    from runnel.server.cli.output import print_table, size_text

    topics = {each.topic: each for each in outcome.topics}
    print_table(
        ["topic", "partitions", "proposed", "records", "bytes", "on disk", "advice"],
        [
            (
                proposal.topic,
                topics[proposal.topic].partitions,
                proposal.partitions,
                f"{outcome.traffic[proposal.topic].records:,}",
                size_text(outcome.traffic[proposal.topic].size_bytes),
                size_text(topics[proposal.topic].size_bytes),
                proposal.reason,
            )
            for proposal in outcome.proposals
        ],
        empty="no topics",
    )
    if outcome.lags:
        print()
        print_table(
            ["group", "topic", "partition", "committed", "end", "lag"],
            [
                (each.group, each.topic, each.partition, each.committed, each.end, each.lag)
                for each in sorted(outcome.lags, key=lambda each: -each.lag)
            ],
        )
    when, growth, _ = disk_status(outcome)
    status = status_of(outcome)
    print(f"\n{status.headline}: {status.detail}")
    print(f"disks full: {when} ({growth})")
    if outcome.report:
        print(f"report: {outcome.report}")
