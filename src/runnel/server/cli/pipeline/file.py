"""`runnel pipeline run FILE`: a pipeline that a file declares."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.server.cli.pipeline.options import JobOptions, job
from runnel.server.cli.pipeline.validate import File

if TYPE_CHECKING:
    from runnel.pipelines.declared.counting import Outcome
    from runnel.pipelines.declared.declaration import Declaration


class InDoubt(StrEnum):
    """What to do with a batch of which nobody knows whether it was written."""

    FAIL = "fail"
    WRITE = "write"
    SKIP = "skip"


InDoubtOption = Annotated[
    InDoubt,
    typer.Option(
        "--in-doubt",
        help="For this start only: write or skip a batch for a topic of which the broker does not know any "
        "more whether it was written, as after a week without one.",
    ),
]


@job(streams=True)
def file(options: JobOptions, file: File, in_doubt: InDoubtOption = InDoubt.FAIL) -> None:
    """Run a pipeline that a file declares; see `runnel pipeline init` for one to start from.

    Example: runnel pipeline run file orders.yaml --once, or shorter: runnel pipeline run orders.yaml --once
    """
    from runnel.pipelines.declared.job import DeclaredOptions, run
    from runnel.server.cli.pipeline.running import run_job

    declaration = _checked(file)
    chosen = DeclaredOptions(
        declaration,
        once=options.once,
        checkpoint=options.checkpoint_given,
        # A broker that the file names stands above the environment's, and below the one of this command.
        broker=options.bootstrap_named,
        in_doubt=in_doubt.value,
    )
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
