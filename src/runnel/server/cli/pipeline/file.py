"""`runnel pipeline run FILE`: run a declared pipeline."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.server.cli.pipeline.options import JobOptions, job
from runnel.server.cli.pipeline.validate import File

if TYPE_CHECKING:
    from runnel.pipelines.declared.counting import Outcome
    from runnel.pipelines.declared.declaration import Declaration


class InDoubt(StrEnum):
    """What to do with a batch whose commit state is unknown."""

    FAIL = "fail"
    WRITE = "write"
    SKIP = "skip"


InDoubtOption = Annotated[
    InDoubt,
    typer.Option(
        "--in-doubt",
        help="For this start only: write or skip a batch whose commit state the broker no longer has, for "
        "example after a week without activity.",
    ),
]


@job(streams=True)
def file(options: JobOptions, file: File, in_doubt: InDoubtOption = InDoubt.FAIL) -> None:
    """Run a pipeline declared in a file; `runnel pipeline init` writes an example.

    Example: runnel pipeline run file orders.yaml --once, or shorter: runnel pipeline run orders.yaml --once
    """
    from runnel.pipelines.declared.job import DeclaredOptions, run
    from runnel.server.cli.pipeline.running import run_job

    declaration = _validated(file)
    chosen = DeclaredOptions(
        declaration,
        once=options.once,
        checkpoint=options.checkpoint_given,
        # Precedence: the command line, the file, the environment.
        broker=options.bootstrap_flag,
        properties=options.properties_flag,
        in_doubt=in_doubt.value,
    )
    run_job(
        declaration.name,
        options,
        lambda session, progress: run(session, chosen, progress),
        show=_show,
    )


def _validated(path: File) -> "Declaration":
    """The validated declaration; errors that only Spark detects are raised when the job starts."""
    from runnel.server.cli.output import print_error
    from runnel.server.cli.pipeline.validate import read_pipeline

    declaration, findings = read_pipeline(path)
    if declaration is None or findings.has_errors:
        for finding in findings:
            print_error(finding.line(str(path)))
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
        print(f"{count} malformed values in {source}")
