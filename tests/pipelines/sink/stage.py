"""A stage without Spark: tasks, commits and aborts in the order Spark calls them, against a real broker."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from uuid import uuid4

import pyarrow as pa

from runnel.client import SyncClient
from runnel.pipelines.sink import writers
from runnel.pipelines.sink.columns import Columns
from runnel.pipelines.sink.options import SinkOptions, write_options
from runnel.pipelines.sink.task import TaskCommitMessage, TaskWriter, WriteInfo

VALUE_ONLY = Columns(value=0, key=None, topic=None, partition=None, headers=None, timestamp=None)


def arrow(values: Iterable[str]) -> pa.RecordBatch:
    return pa.record_batch([pa.array([value.encode() for value in values], pa.binary())], names=["value"])


@dataclass
class Query:
    """A streaming query that writes to one topic."""

    bootstrap_servers: str
    topic: str = "out"
    name: str = field(default_factory=lambda: f"runnel-spark-{uuid4()}")
    settings: dict[str, str] = field(default_factory=dict)
    is_sequential: bool = True
    """Is it a streaming query, and not an application that may continue after a failed write?"""

    @property
    def options(self) -> SinkOptions:
        given = {"kafka.bootstrap.servers": self.bootstrap_servers, "topic": self.topic, **self.settings}
        return write_options(given)

    def info(self, batch: int) -> WriteInfo:
        may_be_first = batch == 0 or not self.is_sequential
        return WriteInfo(
            self.name, batch, may_be_first=may_be_first, is_recorded=True, is_sequential=self.is_sequential
        )

    def task(self, batch: int, number: int, batches: Iterable[pa.RecordBatch]) -> TaskCommitMessage:
        return TaskWriter(self.options, VALUE_ONLY, self.info(batch), number).write(batches)

    def write(self, batch: int, tasks: int) -> list[TaskCommitMessage | None]:
        values = rows_of(batch)
        return [self.task(batch, number, [arrow(values[number::tasks])]) for number in range(tasks)]

    def commit(self, messages: list[TaskCommitMessage | None]) -> None:
        writers._commit(self.options, messages)

    def abort(self, messages: list[TaskCommitMessage | None]) -> None:
        writers._abort(self.options, messages)

    def run(self, batch: int, tasks: int = 2) -> None:
        self.commit(self.write(batch, tasks))

    def visible(self) -> Counter:
        """What a read_committed consumer reads; it would block at an open transaction."""
        with SyncClient(self.bootstrap_servers) as client:
            found = client.read(self.topic, committed_only=True)
        return Counter((message.value or b"").decode() for message in found)


def rows_of(batch: int, count: int = 12) -> list[str]:
    return [f"{batch}-{number}" for number in range(count)]


def expected(batches: int) -> Counter:
    return Counter(row for batch in range(batches) for row in rows_of(batch))


def interrupted(batch: int, interruption) -> Iterator[pa.RecordBatch]:
    """The rows of a batch, with an interruption halfway."""
    values = rows_of(batch)
    yield arrow(values[::2])
    interruption()
    yield arrow(values[1::2])
