"""`runnel pipeline run FILE`: a pipeline that a file declares."""

import os
from typing import TYPE_CHECKING

import typer

from runnel.server.cli.pipeline.options import JobOptions, job
from runnel.server.cli.pipeline.validate import File

if TYPE_CHECKING:
    from runnel.pipelines.declared.declaration import Declaration
    from runnel.pipelines.declared.job import Outcome


@job(streams=True)
def file(options: JobOptions, file: File) -> None:
    """Run a pipeline that a file declares; see `runnel pipeline init` for one to start from.

    Example: runnel pipeline run file orders.yaml --once, or shorter: runnel pipeline run orders.yaml --once
    """
    from runnel.pipelines.declared.job import DeclaredOptions, run
    from runnel.server.cli.pipeline.running import run_job

    declaration = _checked(file)
    # A broker that the file names stands above the environment's, and below the one of this command.
    given = options.bootstrap_given
    broker = None if given == os.environ.get("RUNNEL_BOOTSTRAP") else given
    chosen = DeclaredOptions(declaration, options.once, options.checkpoint_given, broker)
    run_job(
        declaration.name,
        options,
        lambda session, progress: run(session, chosen, progress),
        show=_show,
    )


def _checked(path: File) -> "Declaration":
    """The declaration of a file without mistakes; those that only Spark finds come when it starts."""
    from runnel.server.cli.output import complain
    from runnel.server.cli.pipeline.validate import read_pipeline

    declaration, findings = read_pipeline(path)
    if declaration is None or findings.has_errors:
        for finding in findings:
            complain(finding.line(str(path)))
        raise typer.Exit(1)
    return declaration


def _show(outcome: "Outcome") -> None:
    from runnel.server.cli.output import print_table

    print_table(
        ["query", "batches", "records read", "late"],
        [(query.name, query.batches, query.records, query.late) for query in outcome.queries],
        empty="nothing to do",
    )
    for source, count in outcome.malformed.items():
        print(f"{count} values of {source} were malformed")
