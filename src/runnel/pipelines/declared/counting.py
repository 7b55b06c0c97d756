"""What a declared pipeline did while it ran, counted from the progress of its queries."""

from collections import Counter
from dataclasses import dataclass, field

from runnel.pipelines.declared.declaration import Declaration, Source
from runnel.pipelines.declared.topic_frames import malformed_name
from runnel.pipelines.progress import Progress, StreamBatch


@dataclass(slots=True)
class QueryOutcome:
    """What one query did."""

    name: str
    batches: int = 0
    records: int = 0
    late: int = 0
    """Rows that came after the watermark had passed them, and were left out."""


@dataclass(slots=True)
class Outcome:
    """What a pipeline did while it ran."""

    pipeline: str
    queries: list[QueryOutcome] = field(default_factory=list)
    malformed: dict[str, int] = field(default_factory=dict)
    """Values that could not be decoded, by source."""
    was_stopped: bool = False


class Counting(Progress):
    """Passes progress on, and counts what the outcome reports."""

    def __init__(self, progress: Progress, declaration: Declaration) -> None:
        super().__init__()
        self._progress = progress
        self._by_name: dict[str, QueryOutcome] = {}
        self._malformed: dict[str, Counter[str]] = {}
        self._said: dict[str, int] = {}
        self._sources = {malformed_name(source): source for source in declaration.sources.values()}
        self.outcome = Outcome(declaration.name)

    def batch(self, batch: StreamBatch) -> None:
        """A query has finished a batch."""
        query = self._by_name.get(batch.query)
        if query is None:
            query = self._by_name[batch.query] = QueryOutcome(batch.query)
            self.outcome.queries.append(query)
        query.batches += 1
        query.records += batch.records
        query.late += batch.late
        self._say_growth(query.late, f"rows came too late for {query.name}, and were left out")
        for name, count in batch.observed.items():
            source = self._sources.get(name)
            if source is not None and count:
                self._count_malformed(source, batch.query, count)
        self._progress.batch(batch)

    def _count_malformed(self, source: Source, query: str, count: int) -> None:
        """All queries of a source see the same values: the most advanced one has seen the most."""
        seen = self._malformed.setdefault(source.name, Counter())
        seen[query] += count
        total = max(seen.values())
        self.outcome.malformed[source.name] = total
        end = "go to the dead letters" if source.on_malformed == "dead-letter" else "are skipped"
        self._say_growth(total, f"malformed values of {source.name}, which {end}")

    def _say_growth(self, total: int, what: str) -> None:
        """Say a count when it begins, and whenever it has doubled: often enough, and never too often."""
        if total and total >= 2 * self._said.get(what, 0):
            self._said[what] = total
            self._progress.message(f"{total} {what}")

    def message(self, text: str) -> None:
        """A message for the user."""
        self._progress.message(text)
