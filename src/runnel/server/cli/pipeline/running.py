"""From a job's command to Spark and back: session, progress, what came out, and the code to end with."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from runnel.server.cli.pipeline.options import JobOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.pipelines.progress import Progress

Outcome = TypeVar("Outcome")


def run_job(
    name: str,
    options: JobOptions,
    work: "Callable[[SparkSession, Progress], Outcome]",
    *,
    show: Callable[[Outcome], None],
    is_fine: Callable[[Outcome], bool] = lambda outcome: True,
) -> None:
    """Run a job, print its outcome as asked for, and end with 1 unless that is fine."""
    from runnel.pipelines.progress import Progress
    from runnel.pipelines.session import spark_session
    from runnel.server.cli.output import print_json

    progress = Progress()
    with spark_session(f"runnel {name}", master=options.master, settings=options.settings) as session:
        outcome = work(session, progress)
    print_json(as_document(outcome)) if options.as_json else show(outcome)
    if not is_fine(outcome):
        raise typer.Exit(1)


def as_document(outcome: object) -> Any:
    """An outcome in values that JSON knows."""
    from dataclasses import fields, is_dataclass
    from datetime import date
    from enum import Enum
    from pathlib import Path

    match outcome:
        case Enum():
            return outcome.value
        case date() | Path():
            return outcome.isoformat() if isinstance(outcome, date) else str(outcome)
        case bytes():
            return outcome.decode(errors="backslashreplace")
        case dict():
            return {str(key): as_document(value) for key, value in outcome.items()}
        case list() | tuple() | set() | frozenset():
            return [as_document(value) for value in outcome]
        case _ if is_dataclass(outcome):
            return {field.name: as_document(getattr(outcome, field.name)) for field in fields(outcome)}
        case _:
            return outcome
