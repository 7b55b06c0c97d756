"""`runnel pipeline validate`: everything that is wrong with a pipeline's file, before it runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel.server.cli.options import Json

if TYPE_CHECKING:
    from runnel.pipelines.declared.declaration import Declaration
    from runnel.pipelines.declared.findings import Findings

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="The pipeline, as YAML.", show_default=False, dir_okay=False)
]


def validate(
    file: File,
    spark: Annotated[
        bool,
        typer.Option(
            "--spark/--no-spark",
            help="Let Spark look at queries and functions as well, which takes about half a minute.",
        ),
    ] = True,
    as_json: Json = False,
) -> None:
    """Explain every mistake in a pipeline's file, with its line. Nothing is run, and no broker is asked.

    Example: runnel pipeline validate orders.yaml
    """
    from runnel.server.cli.output import note, print_json

    declaration, findings = read_pipeline(file)
    if spark and declaration is not None:
        _analyse(declaration, findings)
    if as_json:
        print_json(_document(file, findings))
    else:
        for finding in findings:
            print(finding.line(str(file)))
        if not findings.has_errors:
            note(f"{file} is fine" if spark else f"{file} is fine, as far as can be said without Spark")
    if findings.has_errors:
        raise typer.Exit(1)


def read_pipeline(file: Path) -> "tuple[Declaration | None, Findings]":
    """The file's declaration and what is wrong with it."""
    import os

    from runnel.server.cli.output import CannotDo

    try:
        from runnel.pipelines.declared.reading import read_file
    except ImportError as error:
        raise CannotDo(f"pipelines need more packages: pip install 'runnel[spark]' ({error})") from error
    try:
        return read_file(file, os.environ)
    except OSError as error:
        raise CannotDo(f"{file} cannot be read: {error.strerror}") from error


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
                "line": finding.place.line,
                "column": finding.place.column,
                "severity": finding.severity.value,
                "message": finding.message,
            }
            for finding in findings
        ],
    }
