"""The figures and messages of a pipeline, counted from the batches of its queries."""

from pathlib import Path

from runnel.pipelines.declared.counting import Counting
from runnel.pipelines.progress import Progress, StreamBatch
from tests.pipelines.declared.shop import declared

SHOP = """
name: shop
sources:
  orders: {topic: orders, format: string, on-malformed: skip}
sinks:
  one: {from: orders, console: true}
  two: {from: orders, console: true}
"""


class Messages(Progress):
    """Progress that keeps its messages."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def message(self, text: str) -> None:
        self.texts.append(text)


def batch(query: str, number: int, malformed: int) -> StreamBatch:
    observed = {"malformed orders": malformed, "of another query": 9}
    return StreamBatch(query, number, 10, 1.0, 5, lag=None, late=0, observed=observed)


def test_a_value_that_two_sinks_skip_is_counted_once(tmp_path: Path) -> None:
    progress = Messages()
    counting = Counting(progress, declared(tmp_path, SHOP))
    for query, number, malformed in (("one", 0, 3), ("two", 0, 2), ("two", 1, 1), ("one", 1, 2)):
        counting.batch(batch(query, number, malformed))
    assert counting.outcome.malformed == {"orders": 5}
    assert [(query.name, query.batches, query.records) for query in counting.outcome.queries] == [
        ("one", 2, 20),
        ("two", 2, 20),
    ]
    assert progress.texts == ["3 malformed values of orders, which are skipped"]


def test_messages_of_a_job_reach_its_views(tmp_path: Path) -> None:
    progress = Messages()
    Counting(progress, declared(tmp_path, SHOP)).message("resuming from the checkpoint")
    assert progress.texts == ["resuming from the checkpoint"]
