"""Runs a job: Spark session, progress, outcome and exit status."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from runnel.server.cli.pipeline.options import JobOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.pipelines.progress import Progress

Outcome = TypeVar("Outcome")

_KILLED_BY_SIGINT = 130


def run_job(
    name: str,
    options: JobOptions,
    work: "Callable[[SparkSession, Progress], Outcome]",
    *,
    show: Callable[[Outcome], None],
    is_fine: Callable[[Outcome], bool] = lambda outcome: True,
) -> None:
    """Run a job, print its outcome, and exit with status 1 unless it `is_fine`."""
    from runnel.pipelines.failures import explained, is_spark_error
    from runnel.server.cli.output import print_json

    progress = _progress(name, options)
    is_successful = False
    try:
        with _terminated_as_interrupted():
            outcome = _run(name, options, work, progress)
        is_successful = is_fine(outcome)
    except KeyboardInterrupt:
        raise typer.Exit(_KILLED_BY_SIGINT) from None
    except Exception as error:
        if is_spark_error(error):
            raise explained(error) from error
        raise
    finally:
        progress.end(is_successful)
    print_json(as_document(outcome)) if options.as_json else show(outcome)
    if not is_successful:
        raise typer.Exit(1)


def _run(
    name: str,
    options: JobOptions,
    work: "Callable[[SparkSession, Progress], Outcome]",
    progress: "Progress",
) -> Outcome:
    from contextlib import ExitStack

    from runnel.pipelines.session import spark_session

    with ExitStack() as at_end:
        with progress.stage("starting Spark"):
            session = at_end.enter_context(
                spark_session(
                    f"runnel {name}",
                    master=options.master,
                    settings=options.settings,
                    on_message=progress.message,
                )
            )
        return work(session, progress)


def _progress(name: str, options: JobOptions) -> "Progress":
    from pathlib import Path

    from runnel.pipelines.metrics_file import MetricsFile
    from runnel.pipelines.progress import Progress, View
    from runnel.pipelines.terminal import terminal_view

    views: list[View] = []
    if options.metrics is not None:
        views.append(MetricsFile(Path(options.metrics), name))
    if not (options.is_quiet or options.as_json):
        views.append(terminal_view())
    return Progress(*views)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C: shut down cleanly."""
    import signal
    import threading

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def as_document(outcome: object) -> Any:
    """An outcome as JSON values."""
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
