"""Output of the demo: styled on a terminal, plain text in a pipe."""

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
    """Prints the steps of the demo and their results."""

    def __init__(self) -> None:
        console = Console(highlight=False)
        self._console = console if console.is_terminal else Console(highlight=False, width=PIPE_COLUMNS)
        self._step = 0

    def title(self, text: str) -> None:
        """The headline."""
        self._console.print(Rule(f"[bold]{escape(text)}[/bold]"))

    def step(self, text: str) -> None:
        """Heading of the next step."""
        self._step += 1
        self._console.print(f"\n[bold cyan]{self._step}. {escape(text)}[/bold cyan]")

    def say(self, text: str) -> None:
        """A line of text, with rich markup."""
        self._console.print(f"   {text}")

    def done(self, text: str) -> None:
        """A result that was verified."""
        self._console.print(f"   [green]✓[/green] {text}")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """A table; all but the first column are right-aligned."""
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for index, column in enumerate(columns):
            table.add_column(column, justify="right" if index else "left", no_wrap=True)
        for row in rows:
            table.add_row(*(escape(str(cell)) for cell in row))
        self._console.print(table)

    def bars(self, rows: Sequence[tuple[str, int]]) -> None:
        """A bar chart, scaled to the largest value."""
        largest = max((value for _, value in rows), default=0) or 1
        for name, value in rows:
            bar = "█" * max(round(value / largest * BAR_COLUMNS), 1 if value else 0)
            self._console.print(f"   {escape(name)} [cyan]{bar}[/cyan] {value}")

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Show a spinner on a terminal while the block runs."""
        if not self._console.is_terminal:
            yield
            return
        with self._console.status(f"{escape(text)} …"):
            yield
