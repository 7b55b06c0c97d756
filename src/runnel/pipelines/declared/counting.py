"""Counts the batches, records and malformed values of a declared pipeline."""

from collections import Counter
from dataclasses import dataclass, field

from runnel.pipelines.declared.declaration import Declaration, Source
from runnel.pipelines.declared.topic_frames import malformed_name
from runnel.pipelines.progress import Progress, StreamBatch


@dataclass(slots=True)
class QueryOutcome:
    """The totals of one query."""

    name: str
    batches: int = 0
    records: int = 0
    late: int = 0
    """Rows dropped because they were later than the watermark."""


@dataclass(slots=True)
class Outcome:
    """The totals of a run."""

    pipeline: str
    queries: list[QueryOutcome] = field(default_factory=list)
    malformed: dict[str, int] = field(default_factory=dict)
    """Values that could not be decoded, by source."""
    was_stopped: bool = False


class Counting(Progress):
    """Forwards progress, and counts what the outcome reports."""

    def __init__(self, progress: Progress, declaration: Declaration) -> None:
        super().__init__()
        self._progress = progress
        self._by_name: dict[str, QueryOutcome] = {}
        self._malformed: dict[str, Counter[str]] = {}
        self._reported: dict[str, int] = {}
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
        self._report_growth(
            query.late, f"rows were later than the watermark of {query.name}, and were dropped"
        )
        for name, count in batch.observed.items():
            source = self._sources.get(name)
            if source is not None and count:
                self._count_malformed(source, batch.query, count)
        self._progress.batch(batch)

    def _count_malformed(self, source: Source, query: str, count: int) -> None:
        """All queries of a source read the same values, so the largest count is the total."""
        seen = self._malformed.setdefault(source.name, Counter())
        seen[query] += count
        total = max(seen.values())
        self.outcome.malformed[source.name] = total
        end = "go to the dead letters" if source.on_malformed == "dead-letter" else "are skipped"
        self._report_growth(total, f"malformed values of {source.name}, which {end}")

    def _report_growth(self, total: int, what: str) -> None:
        """Report a count when it is first positive, and whenever it has doubled."""
        if total and total >= 2 * self._reported.get(what, 0):
            self._reported[what] = total
            self._progress.message(f"{total} {what}")

    def message(self, text: str) -> None:
        """A message for the user."""
        self._progress.message(text)
