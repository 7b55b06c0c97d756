"""Topic and config administration."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from runnel.client.cluster import Cluster, TopicView
from runnel.client.errors import ClientError, check
from runnel.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from runnel.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from runnel.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from runnel.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from runnel.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from runnel.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from runnel.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from runnel.model.configs import AlterOperation, ConfigSource, ResourceType
from runnel.model.ids import TopicPartition
from runnel.wire import Request, Response

ResponseT = TypeVar("ResponseT", bound=Response)

BROKER_DEFAULT = -1
"""The broker's default number of partitions or replicas (KIP-464)."""


@dataclass(slots=True)
class Setting:
    """One config with its value and source."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None


class Admin:
    """Administers the topics and configs of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def topics(self) -> list[TopicView]:
        """All topics, sorted by name."""
        return await self._cluster.topics()

    async def topic(self, name: str) -> TopicView:
        """The current metadata of a topic."""
        self._cluster.invalidate_topic(name)
        return await self._cluster.topic(name)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        settings: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Create a topic; BrokerError if it exists or the request is invalid."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (settings or {}).items()],
        )
        request = CreateTopicsRequest(
            topics=[topic], timeout_ms=self._timeout_ms, validate_only=validate_only
        )

        async def attempt() -> None:
            response = await self._cluster.send_to_controller(request, CreateTopicsResponse)
            check(response.topics[0].error_code, f"creating topic {name}", response.topics[0].error_message)

        await self._cluster.retry(attempt)
        self._cluster.invalidate_topic(name)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=self._timeout_ms
        )
        # Not retried: UNKNOWN_TOPIC_OR_PARTITION is retriable, but final here.
        response = await self._cluster.send_to_controller(request, DeleteTopicsResponse)
        check(response.responses[0].error_code, f"deleting topic {name}", response.responses[0].error_message)
        self._cluster.invalidate_topic(name)

    async def add_partitions(self, name: str, total: int) -> None:
        """Increase the number of partitions to `total`; existing records are not moved."""
        topic = CreatePartitionsTopic(name=name, count=total, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=self._timeout_ms)
        response = await self._cluster.send_to_controller(request, CreatePartitionsResponse)
        result = response.results[0]
        check(result.error_code, f"adding partitions to topic {name}", result.error_message)
        self._cluster.invalidate_topic(name)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before an offset (-1 for all); returns the new log start offsets."""
        first: dict[TopicPartition, int] = {}
        for node_id, partitions in (await self._cluster.by_leader(before)).items():
            topics: dict[str, DeleteRecordsTopic] = {}
            for partition in partitions:
                topic = topics.setdefault(partition.topic, DeleteRecordsTopic(name=partition.topic))
                topic.partitions.append(
                    DeleteRecordsPartition(partition_index=partition.partition, offset=before[partition])
                )
            request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=self._timeout_ms)
            response = await self._cluster.send_to_node(node_id, request, DeleteRecordsResponse)
            for result in response.topics:
                for view in result.partitions:
                    partition = TopicPartition(result.name, view.partition_index)
                    check(view.error_code, f"deleting records of {partition}")
                    first[partition] = view.low_watermark
        return first

    async def sizes(self) -> dict[TopicPartition, int]:
        """The size on disk of every partition, over all replicas."""
        await self._cluster.retry(lambda: self._cluster.refresh([]))
        sizes: dict[TopicPartition, int] = {}
        for node_id in list(self._cluster.nodes):
            request = DescribeLogDirsRequest(topics=None)
            response = await self._cluster.send_to_node(node_id, request, DescribeLogDirsResponse)
            check(response.error_code, "describing log directories")
            for directory in response.results:
                check(directory.error_code, f"describing log directory {directory.log_dir}")
                for topic in directory.topics:
                    for view in topic.partitions:
                        partition = TopicPartition(topic.name, view.partition_index)
                        sizes[partition] = sizes.get(partition, 0) + view.partition_size
        return sizes

    async def settings(
        self, kind: ResourceType, name: str, *, keys: Iterable[str] | None = None, documentation: bool = False
    ) -> list[Setting]:
        """The configs of a topic, broker or group."""
        resource = DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
        )
        request = DescribeConfigsRequest(resources=[resource], include_documentation=documentation)
        response = await self._send_to_owner(kind, name, request, DescribeConfigsResponse)
        result = response.results[0]
        check(
            result.error_code,
            f"describing the configs of {kind.name.lower()} {name or 'default'}",
            result.error_message,
        )
        return [
            Setting(
                view.name,
                view.value,
                _source(view.config_source),
                view.read_only,
                view.is_sensitive,
                view.documentation,
            )
            for view in sorted(result.configs, key=lambda view: view.name)
        ]

    async def alter_settings(
        self,
        kind: ResourceType,
        name: str,
        changes: Iterable[tuple[str, AlterOperation, str | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set, delete, append to or subtract from configs; all changes are applied or none."""
        configs = [
            AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        response = await self._send_to_owner(kind, name, request, IncrementalAlterConfigsResponse)
        result = response.responses[0]
        check(
            result.error_code,
            f"altering the configs of {kind.name.lower()} {name or 'default'}",
            result.error_message,
        )

    async def _send_to_owner(
        self, kind: ResourceType, name: str, request: Request, response_type: type[ResponseT]
    ) -> ResponseT:
        # Only the broker itself knows its static configs.
        if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and name:
            return await self._cluster.send_to_node(_node_id(name), request, response_type)
        return await self._cluster.send_to_controller(request, response_type)

    @property
    def _timeout_ms(self) -> int:
        return int(self._cluster.timeout_s * 1000)


def _source(code: int) -> ConfigSource:
    try:
        return ConfigSource(code)
    except ValueError:
        return ConfigSource.UNKNOWN


def _node_id(name: str) -> int:
    try:
        return int(name)
    except ValueError:
        raise ClientError(f"{name!r} is not a broker id; broker ids are numbers") from None
