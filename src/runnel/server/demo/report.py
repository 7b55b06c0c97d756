"""What the demo says, and how it looks; in a pipe it is plain text."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.rule import Rule
from rich.table import Table

PIPE_COLUMNS = 100
BAR_COLUMNS = 40


class Report:
    """Prints the story chapter by chapter."""

    def __init__(self) -> None:
        console = Console(highlight=False)
        self._console = console if console.is_terminal else Console(highlight=False, width=PIPE_COLUMNS)
        self._chapter = 0

    def title(self, text: str) -> None:
        """The headline."""
        self._console.print(Rule(f"[bold]{escape(text)}[/bold]"))

    def chapter(self, text: str) -> None:
        """A new part of the story."""
        self._chapter += 1
        self._console.print(f"\n[bold cyan]{self._chapter}. {escape(text)}[/bold cyan]")

    def say(self, text: str) -> None:
        """A sentence; rich's markup may be in it."""
        self._console.print(f"   {text}")

    def done(self, text: str) -> None:
        """A sentence about something that was checked."""
        self._console.print(f"   [green]✓[/green] {text}")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Rows under their names; all but the first column to the right."""
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for index, column in enumerate(columns):
            table.add_column(column, justify="right" if index else "left", no_wrap=True)
        for row in rows:
            table.add_row(*(escape(str(cell)) for cell in row))
        self._console.print(table)

    def bars(self, rows: Sequence[tuple[str, int]]) -> None:
        """Numbers as bars, the largest as wide as it goes."""
        largest = max((value for _, value in rows), default=0) or 1
        for name, value in rows:
            bar = "█" * max(round(value / largest * BAR_COLUMNS), 1 if value else 0)
            self._console.print(f"   {escape(name)} [cyan]{bar}[/cyan] {value}")

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Something that takes a moment; a spinner where somebody looks."""
        if not self._console.is_terminal:
            yield
            return
        with self._console.status(f"{escape(text)} …"):
            yield
