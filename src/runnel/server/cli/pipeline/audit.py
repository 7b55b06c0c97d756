"""`runnel pipeline run audit`: verify logs and archives."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.server.cli.pipeline.options import JobOptions, job

if TYPE_CHECKING:
    from runnel.pipelines.audit.job import AuditOutcome

_SHOWN = 50

Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", help="Topic. Repeatable. Default: all.", metavar="TOPIC"),
]
Folder = Annotated[
    Path | None,
    typer.Option("--from", metavar="DATA_DIR", help="Audit the data directory of a stopped broker."),
]
Warehouse = Annotated[
    str | None,
    typer.Option("--archive", metavar="DIR", help="Compare with the archive in this warehouse directory."),
]
Namespace = Annotated[str, typer.Option("--namespace", help="Catalog namespace of the archive's tables.")]
Expect = Annotated[
    list[str] | None,
    typer.Option(
        "--expect",
        metavar="TOPIC[:PARTITION]=COUNT",
        help="Expected number of records. Repeatable.",
    ),
]
Compacted = Annotated[
    list[str] | None,
    typer.Option(
        "--compacted",
        metavar="TOPIC",
        help="A topic that was compacted in the past: its offset gaps are no loss.",
    ),
]
StrictTime = Annotated[bool, typer.Option("--strict-time", help="Fail if producer timestamps decrease.")]
Report = Annotated[
    Path | None,
    typer.Option("--report", metavar="DIR", help="Report directory. Default: .runnel/reports/audit-TIME."),
]


@job(streams=False)
def audit(
    options: JobOptions,
    topics: Topics = None,
    folder: Folder = None,
    archive: Warehouse = None,
    namespace: Namespace = "archive",
    expect: Expect = None,
    compacted: Compacted = None,
    strict_time: StrictTime = False,
    report: Report = None,
) -> None:
    """Verify every batch and report loss, duplication and corruption. Exits with status 1 on findings.

    Reports offset gaps, checksum mismatches, duplicates written by retries, committed offsets beyond the log
    end, and records that are missing or different in the archive. Gaps caused by compaction or retention are
    no loss. Writes an HTML report and the same as JSON.

    Example: runnel pipeline run audit

    Example: runnel pipeline run audit --topic orders --archive warehouse --expect orders=1000000

    Example: runnel pipeline run audit --from /var/lib/runnel
    """
    import time

    from runnel.pipelines.audit.archive import Archive
    from runnel.pipelines.audit.expectations import parse_expected
    from runnel.pipelines.audit.job import AuditOptions, run
    from runnel.pipelines.report.writing import report_folder
    from runnel.server.cli.pipeline.running import run_job

    chosen = AuditOptions(
        bootstrap=None if folder else options.bootstrap,
        properties=options.properties,
        folder=folder,
        topics=tuple(topics or ()),
        archive=Archive(archive, namespace) if archive else None,
        expected=tuple(map(parse_expected, expect or ())),
        compacted=tuple(compacted or ()),
        time_is_strict=strict_time,
        report=report or report_folder("audit", round(time.time() * 1000)),
    )
    run_job(
        "audit",
        options,
        lambda session, progress: run(session, chosen, progress),
        show=_show,
        is_fine=lambda outcome: outcome.is_sound,
    )


def _show(outcome: "AuditOutcome") -> None:
    from runnel.server.cli.output import print_table

    findings = [*outcome.faults, *outcome.notices]
    if findings:
        print_table(
            ["level", "problem", "location", "details"],
            [(finding.level, finding.kind, finding.where, finding.text) for finding in findings[:_SHOWN]],
        )
        if len(findings) > _SHOWN:
            print(f"… and {len(findings) - _SHOWN:,} more, in the report")
        print()
    print(outcome.headline)
    if outcome.report:
        print(f"report: {outcome.report}")
