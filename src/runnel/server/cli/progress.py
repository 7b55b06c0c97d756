"""A progress bar on standard error if it is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ReportProgress = Callable[[str, int, int], None]
"""(description, completed, total)"""


@contextmanager
def progress() -> Iterator[ReportProgress]:
    """A function that reports progress while the block runs."""
    if not sys.stderr.isatty():
        yield lambda doing, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    tasks: dict[str, TaskID] = {}

    def report(doing: str, done: int, total: int) -> None:
        if doing not in tasks:
            tasks[doing] = bar.add_task(doing, total=total)
        bar.update(tasks[doing], completed=done, total=total)

    with bar:
        yield report
