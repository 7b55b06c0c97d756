"""Fetches a range of one partition from its leader, with retries while brokers are unavailable."""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from runnel.batch.errors import CorruptBatch
from runnel.client.cluster import parse_addresses
from runnel.client.errors import BrokerError, ClientError, NoBrokerAvailable, check
from runnel.client.offsets import EARLIEST, LATEST
from runnel.client.properties import NO_PROPERTIES, ClientProperties
from runnel.client.security import ClientSecurity, security_of
from runnel.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from runnel.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from runnel.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import NO_ID, TopicPartition
from runnel.pipelines.errors import BrokerUnreachable, DamagedRecords, DataLost, PipelineError
from runnel.pipelines.source.connection import BlockingConnection
from runnel.pipelines.source.cursor import Chunk, Cursor, Finished, LargerFetch, OutOfRange, Wait
from runnel.pipelines.source.options import FETCH_BYTES_MAX

REQUEST_TIMEOUT_S = 30.0
FETCH_WAIT_MS = 500
PAUSE_S = 0.2

MISSING_TOPIC_TIMEOUT_S = 5.0

logger = logging.getLogger(__name__)


class _TopicRecreated(ClientError):
    """The topic was recreated since the range was planned."""


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """The settings of a task's fetches."""

    bootstrap_servers: str
    client_id: str
    isolation: int
    timeout_s: float
    """How long brokers may be unavailable, or behind, until the task fails."""
    max_bytes: int
    fail_on_data_loss: bool
    properties: ClientProperties = NO_PROPERTIES


class RangeFetcher:
    """Reads one range once. The next fetch is in flight while the caller processes the previous one."""

    def __init__(
        self,
        settings: FetchSettings,
        partition: TopicPartition,
        start: int,
        end: int,
        topic_id: bytes = NO_ID,
    ) -> None:
        """A known `topic_id` distinguishes the topic from a later one of the same name."""
        self._settings = settings
        self._partition = partition
        self._topic_id = topic_id
        self._cursor = Cursor(partition, start, end, settings.isolation)
        self._max_bytes = settings.max_bytes
        self._connection: BlockingConnection | None = None
        self._security: ClientSecurity | None = None
        self._in_flight = False
        self._deadline = 0.0

    def chunks(self) -> Iterator[Chunk]:
        """The batches of the range, in order."""
        self._reset_deadline()
        try:
            while not self._cursor.is_done:
                try:
                    chunk = self._next_chunk()
                except ClientError as error:
                    self._handle_error(error)
                    continue
                except CorruptBatch as error:
                    raise DamagedRecords(f"{self._partition}: {error}") from error
                if chunk is not None:
                    yield chunk
                    # The timeout does not include the time that the caller takes.
                    self._reset_deadline()
        finally:
            self._disconnect()

    def _next_chunk(self) -> Chunk | None:
        view, throttled = self._fetch()
        match self._cursor.answered(view, throttled):
            case Chunk() as chunk:
                if not self._cursor.is_done:
                    self._prefetch()
                return chunk
            case Wait(reason):
                self._wait(reason)
            case OutOfRange():
                self._handle_out_of_range()
            case LargerFetch():
                self._enlarge_fetch()
            case Finished():
                pass
        return None

    def _fetch(self) -> tuple[PartitionData, bool]:
        if not self._in_flight:
            self._send_fetch()
        self._in_flight = False
        answer = cast(FetchResponse, self._connected().receive())
        check(answer.error_code, f"fetching {self._partition}")
        if not answer.responses or not answer.responses[0].partitions:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(self._partition))
        return answer.responses[0].partitions[0], answer.throttle_time_ms > 0

    def _send_fetch(self) -> None:
        topic, number = self._partition
        wanted = FetchPartition(
            partition=number, fetch_offset=self._cursor.position, partition_max_bytes=self._max_bytes
        )
        self._connected().send(
            FetchRequest(
                max_wait_ms=FETCH_WAIT_MS,
                min_bytes=1,
                max_bytes=self._max_bytes,
                isolation_level=self._settings.isolation,
                topics=[FetchTopic(topic=topic, topic_id=self._topic_id, partitions=[wanted])],
            ),
            FetchResponse,
        )
        self._in_flight = True

    def _prefetch(self) -> None:
        """Request the next batches. A failure is retried later: what was received is not lost by it."""
        try:
            self._send_fetch()
        except ClientError:
            self._disconnect()

    def _enlarge_fetch(self) -> None:
        if self._max_bytes >= FETCH_BYTES_MAX:
            raise PipelineError(
                f"{self._partition}: the batch at offset {self._cursor.position} is larger than "
                f"{FETCH_BYTES_MAX} bytes"
            )
        self._max_bytes = min(4 * self._max_bytes, FETCH_BYTES_MAX)

    # Errors.

    def _handle_out_of_range(self) -> None:
        """The position is out of range."""
        cursor = self._cursor
        first, end = self._bounds()
        missing = f"{self._partition}: offsets {cursor.position} to {cursor.end - 1}"
        if first <= cursor.position <= end:
            # The log has grown since, or its leader has changed.
            self._wait(f"offset {cursor.position} is out of range")
            return
        found = f"the log now holds offsets {first} to {end - 1}" if end > first else "the log is empty"
        if self._settings.fail_on_data_loss:
            raise DataLost(f"{missing} were requested, but {found}. {SKIP_ADVICE}")
        logger.warning("%s are missing, at least in part, and are skipped: %s", missing, found)
        cursor.resumed(first if first > cursor.position else cursor.end)

    def _bounds(self) -> tuple[int, int]:
        """The log start offset and the log end offset at the leader."""
        found: list[int] = []
        for moment in (EARLIEST, LATEST):
            wanted = ListOffsetsPartition(partition_index=self._partition.partition, timestamp=moment)
            topic = ListOffsetsTopic(name=self._partition.topic, partitions=[wanted])
            answer = self._connected().ask(
                ListOffsetsRequest(replica_id=-1, topics=[topic]), ListOffsetsResponse
            )
            view = answer.topics[0].partitions[0]
            check(view.error_code, f"listing the offsets of {self._partition}")
            found.append(view.offset)
        return found[0], found[1]

    def _wait(self, reason: str) -> None:
        if time.monotonic() < self._deadline:
            time.sleep(PAUSE_S if self._cursor.empty_answers == 0 else 0)
            return
        self._give_up(f"did not arrive within {self._settings.timeout_s:g} s: {reason}")

    def _handle_error(self, error: ClientError) -> None:
        """Handle a failed request: retriable errors are retried until the timeout."""
        self._disconnect()
        if isinstance(error, _TopicRecreated):
            self._give_up(str(error))
            return
        if not error.retriable:
            raise PipelineError(f"{self._partition}: {error}") from error
        now = time.monotonic()
        if isinstance(error, BrokerError) and error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            # Metadata propagates in a moment, so a missing topic has a shorter timeout.
            self._deadline = min(self._deadline, now + MISSING_TOPIC_TIMEOUT_S)
            if now >= self._deadline:
                self._give_up("cannot be read: the topic or partition no longer exists")
                return
        if now >= self._deadline:
            kind = BrokerUnreachable if isinstance(error, NoBrokerAvailable) else PipelineError
            raise kind(f"{self._partition}: gave up after {self._settings.timeout_s:g} s: {error}") from error
        time.sleep(PAUSE_S)

    def _give_up(self, reason: str) -> None:
        """The rest of the range cannot be read."""
        cursor = self._cursor
        rest = f"{self._partition}: offsets {cursor.position} to {cursor.end - 1} {reason}"
        if self._settings.fail_on_data_loss:
            raise DataLost(f"{rest}. {SKIP_ADVICE}")
        logger.warning("%s; they are skipped", rest)
        cursor.resumed(cursor.end)

    def _reset_deadline(self) -> None:
        self._deadline = time.monotonic() + self._settings.timeout_s

    # Connections.

    def _connected(self) -> BlockingConnection:
        if self._connection is None:
            self._connection = self._connect_to_leader()
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._in_flight = False

    def _connect_to_leader(self) -> BlockingConnection:
        bootstrap = self._connect_to_any()
        try:
            answer = bootstrap.ask(
                MetadataRequest(
                    topics=[MetadataRequestTopic(name=self._partition.topic)], allow_auto_topic_creation=False
                ),
                MetadataResponse,
            )
            leader = self._view_of(answer).leader_id
            addresses = {node.node_id: (node.host, node.port) for node in answer.brokers}
            if leader not in addresses:
                raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, str(self._partition))
        except BaseException:
            bootstrap.close()
            raise
        host, port = addresses[leader]
        if bootstrap.address == f"{host}:{port}":
            connection = bootstrap
        else:
            bootstrap.close()
            connection = self._connect(host, port)
        if self._topic_id != NO_ID:
            connection.use_topic_ids()
        return connection

    def _view_of(self, answer: MetadataResponse) -> MetadataResponsePartition:
        check(answer.error_code, "requesting metadata")
        topic = answer.topics[0]
        check(topic.error_code, f"topic {self._partition.topic}")
        if NO_ID not in (self._topic_id, topic.topic_id) and topic.topic_id != self._topic_id:
            raise _TopicRecreated("are missing: the topic was deleted and recreated")
        self._topic_id = topic.topic_id
        for view in topic.partitions:
            if view.partition_index == self._partition.partition:
                return view
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(self._partition))

    def _connect_to_any(self) -> BlockingConnection:
        addresses = parse_addresses(self._settings.bootstrap_servers)
        for host, port in addresses[:-1]:
            try:
                return self._connect(host, port)
            except ClientError:
                # No broker, or one that accepts connections and does not respond.
                continue
        return self._connect(*addresses[-1])

    def _connect(self, host: str, port: int) -> BlockingConnection:
        # Kept: the next connection need not read files again.
        self._security = self._security or security_of(self._settings.properties)
        return BlockingConnection(
            host,
            port,
            client_id=self._settings.client_id,
            security=self._security,
            # A fetch may wait for records at the broker.
            timeout_s=min(REQUEST_TIMEOUT_S, self._settings.timeout_s) + FETCH_WAIT_MS / 1000,
        )


SKIP_ADVICE = "To skip the missing records, set the option failOnDataLoss to false."
