"""`runnel pipeline validate`: report all errors of a pipeline file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel.server.cli.options import Json

if TYPE_CHECKING:
    from runnel.pipelines.declared.declaration import Declaration
    from runnel.pipelines.declared.findings import Findings

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="Pipeline file (YAML).", show_default=False, dir_okay=False)
]


def validate(
    file: File,
    spark: Annotated[
        bool,
        typer.Option(
            "--spark/--no-spark",
            help="Analyse queries and functions with Spark, which takes about half a minute.",
        ),
    ] = True,
    as_json: Json = False,
) -> None:
    """Report every error in a pipeline file with its line. Runs nothing and contacts no broker.

    Example: runnel pipeline validate orders.yaml
    """
    from runnel.server.cli.output import print_info, print_json

    declaration, findings = read_pipeline(file)
    if spark and declaration is not None:
        _analyse(declaration, findings)
    if as_json:
        print_json(_document(file, findings))
    else:
        for finding in findings:
            print(finding.line(str(file)))
        if not findings.has_errors:
            print_info(f"{file} is valid" if spark else f"{file} is valid (queries were not analysed)")
    if findings.has_errors:
        raise typer.Exit(1)


def read_pipeline(file: Path) -> "tuple[Declaration | None, Findings]":
    """The declaration of a file, and its findings."""
    import os

    from runnel.server.cli.output import CommandError

    try:
        from runnel.pipelines.declared.reading import read_file
    except ImportError as error:
        raise CommandError(
            f"pipelines require additional packages: pip install 'runnel[spark]' ({error})"
        ) from error
    try:
        return read_file(file, os.environ)
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}") from error


def _analyse(declaration: "Declaration", findings: "Findings") -> None:
    from runnel.pipelines.declared.analysis import analyse
    from runnel.pipelines.session import spark_session

    with spark_session("runnel pipeline validate", master="local[1]") as session:
        analyse(session, declaration, findings)


def _document(file: Path, findings: "Findings") -> dict[str, Any]:
    return {
        "file": str(file),
        "ok": not findings.has_errors,
        "findings": [
            {
                "line": finding.position.line,
                "column": finding.position.column,
                "severity": finding.severity.value,
                "message": finding.message,
            }
            for finding in findings
        ],
    }
