"""A synchronous client of the brokers for the driver.

with BrokerView("127.0.0.1:9092") as broker:
    ends = broker.latest_offsets(broker.partitions(["orders"]))
"""

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from types import TracebackType
from typing import TypeVar

from runnel.client.admin import BROKER_DEFAULT, Admin
from runnel.client.backoff import Backoff
from runnel.client.cluster import Cluster, TopicView
from runnel.client.errors import BrokerError, ClientError, InvalidProperty, NoBrokerAvailable, check
from runnel.client.groups import Groups
from runnel.client.loop_thread import LoopThread
from runnel.client.offsets import NOT_FOUND, READ_UNCOMMITTED, end_offsets, list_offsets, start_offsets
from runnel.client.properties import NO_PROPERTIES, ClientProperties
from runnel.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from runnel.model.configs import ResourceType
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.pipelines.errors import BadOption, BrokerUnreachable, PipelineError, UnknownTopic

T = TypeVar("T")

Offsets = dict[TopicPartition, int]


class BrokerView:
    """A connection to the brokers, as a context manager. Its errors are PipelineErrors."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "runnel",
        timeout_s: float = 30.0,
        api_timeout_s: float | None = None,
        connect_timeout_s: float = 0.0,
        properties: ClientProperties = NO_PROPERTIES,
    ) -> None:
        """`timeout_s` bounds one request; operations are retried for `api_timeout_s`.

        The first connection is retried for `connect_timeout_s`. Without it a wrong address fails at once,
        as commands should; queries must survive a restart of the broker.
        """
        self.bootstrap = bootstrap
        try:
            cluster = Cluster(
                bootstrap,
                client_id=client_id,
                timeout_s=timeout_s,
                api_timeout_s=api_timeout_s,
                properties=properties,
            )
        except ValueError as error:
            raise BadOption(f"kafka.bootstrap.servers: {error}") from None
        except InvalidProperty as error:
            raise BadOption(str(error)) from None
        self._cluster = cluster
        self._thread = LoopThread("runnel broker view")
        try:
            self.run(lambda cluster: _connect(cluster, connect_timeout_s))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "BrokerView":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        try:
            self._thread.call(self._cluster.close())
        finally:
            self._thread.close()

    def run(self, operation: Callable[[Cluster], Awaitable[T]]) -> T:
        """Run an operation on the cluster and wait for its result."""

        async def call() -> T:
            return await operation(self._cluster)

        try:
            return self._thread.call(call())
        except ClientError as error:
            raise pipeline_error(error) from error
        except TimeoutError as error:
            raise PipelineError(f"{self.bootstrap} did not respond in time") from error

    def cluster_id(self) -> str | None:
        """The cluster id, if the broker reports one."""

        async def ask(cluster: Cluster) -> str | None:
            await cluster.retry(lambda: cluster.refresh([]))
            return cluster.cluster_id or None

        return self.run(ask)

    # Topics.

    def topics(self) -> list[TopicView]:
        """All topics except internal ones."""
        views = self.run(lambda cluster: cluster.topics())
        return [view for view in views if not view.is_internal]

    def topic(self, name: str) -> TopicView:
        """The current metadata of a topic; UnknownTopic if it does not exist."""
        return self.named_topics([name])[0]

    def named_topics(self, names: Iterable[str], *, may_miss: Container[str] = ()) -> list[TopicView]:
        """The current metadata of topics; UnknownTopic if one is missing and not in `may_miss`."""
        wanted = list(names)

        async def ask(cluster: Cluster) -> list[TopicView]:
            for name in wanted:
                cluster.invalidate_topic(name)
            await cluster.retry(lambda: cluster.refresh(wanted))
            views: list[TopicView] = []
            for name in wanted:
                try:
                    views.append(await cluster.topic(name))
                except BrokerError as error:
                    if name not in may_miss or error.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        raise
            return views

        return self.run(ask)

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """All partitions of these topics; UnknownTopic if one does not exist."""
        return [
            TopicPartition(topic.name, view.partition)
            for topic in self.named_topics(topics)
            for view in topic.partitions
        ]

    def create_topic(
        self, name: str, *, partitions: int = BROKER_DEFAULT, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic."""
        self.run(lambda cluster: Admin(cluster).create_topic(name, partitions=partitions, settings=settings))

    def ensure_topic(
        self, name: str, *, partitions: int = BROKER_DEFAULT, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic if it does not exist."""

        async def ask(cluster: Cluster) -> None:
            try:
                await Admin(cluster).create_topic(name, partitions=partitions, settings=settings)
            except BrokerError as error:
                if error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise

        self.run(ask)

    def add_partitions(self, name: str, total: int) -> None:
        """Increase the number of partitions of a topic to `total`."""
        self.run(lambda cluster: Admin(cluster).add_partitions(name, total))

    def topic_settings(self, name: str) -> dict[str, str | None]:
        """The configuration of a topic, including defaults."""
        settings = self.run(lambda cluster: Admin(cluster).settings(ResourceType.TOPIC, name))
        return {setting.name: setting.value for setting in settings}

    # Offsets.

    def earliest_offsets(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The log start offsets."""
        wanted = list(partitions)
        return self.run(lambda cluster: start_offsets(cluster, wanted)) if wanted else {}

    def latest_offsets(
        self, partitions: Iterable[TopicPartition], *, isolation: int = READ_UNCOMMITTED
    ) -> Offsets:
        """The high watermarks; with READ_COMMITTED, the last stable offsets."""
        wanted = list(partitions)
        return self.run(lambda cluster: end_offsets(cluster, wanted, isolation=isolation)) if wanted else {}

    def offsets_at(
        self, moments: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after a timestamp in ms, or None where there is none.

        `runnel.client.offsets.EARLIEST` and `LATEST` are accepted as timestamps.
        """
        if not moments:
            return {}
        found = self.run(lambda cluster: list_offsets(cluster, moments, isolation=isolation))
        return {
            partition: None if listed.offset == NOT_FOUND else listed.offset
            for partition, listed in found.items()
        }

    def log_sizes(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Bytes on disk of one replica of each of these partitions."""
        wanted: dict[str, DescribableLogDirTopic] = {}
        for topic, partition in partitions:
            wanted.setdefault(topic, DescribableLogDirTopic(topic)).partitions.append(partition)
        request = DescribeLogDirsRequest(topics=list(wanted.values()))

        async def ask(cluster: Cluster) -> dict[TopicPartition, int]:
            async with asyncio.timeout(timeout_s):
                return await cluster.retry(lambda: ask_all(cluster))

        async def ask_all(cluster: Cluster) -> dict[TopicPartition, int]:
            sizes: dict[TopicPartition, int] = {}
            await cluster.refresh([])
            for node_id in list(cluster.nodes):
                answer = await cluster.send_to_node(node_id, request, DescribeLogDirsResponse)
                check(answer.error_code, "reading the sizes of logs")
                for folder in answer.results:
                    for topic in folder.topics:
                        for view in topic.partitions:
                            partition = TopicPartition(topic.name, view.partition_index)
                            sizes[partition] = max(sizes.get(partition, 0), view.partition_size)
            return sizes

        return self.run(ask)

    # Groups.

    def group_offsets(self, group_id: str) -> Offsets:
        """All committed offsets of a group."""
        commits = self.run(lambda cluster: Groups(cluster).committed(group_id))
        return {partition: commit.offset for partition, commit in commits.items()}

    def commit_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> None:
        """Commit offsets of a group, which must have no members."""

        async def ask(cluster: Cluster) -> None:
            async with asyncio.timeout(timeout_s):
                await Groups(cluster).commit(group_id, offsets)

        if offsets:
            self.run(ask)

    def groups(self) -> list[str]:
        """The names of all consumer groups."""
        listings = self.run(lambda cluster: Groups(cluster).list())
        return [listing.group_id for listing in listings]


async def _connect(cluster: Cluster, timeout_s: float) -> None:
    backoff = Backoff(timeout_s)
    while True:
        try:
            await cluster.any_connection()
            return
        except ClientError as error:
            await backoff.after(error)


def pipeline_error(error: ClientError) -> PipelineError:
    """Convert a client error."""
    if isinstance(error, NoBrokerAvailable):
        return BrokerUnreachable(str(error))
    if isinstance(error, BrokerError) and error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UnknownTopic(str(error))
    return PipelineError(str(error))
