"""Requests that assign replicas of this node to directories (AssignReplicasToDirs, KIP-858), with retries."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from runnel.controller.features import DIRECTORIES_LEVEL
from runnel.controller.values import PartitionState
from runnel.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import TopicPartition

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

log = logging.getLogger("runnel.broker")

RETRY_DELAY_MS = 200
TIMEOUT_MS = 10_000
PARTITIONS_MAX = 2_000
"""Partitions of one request."""

Assignments = dict[TopicPartition, bytes]
"""Replicas of this node, and the directories to assign them to."""


def directory_of(state: PartitionState, node: int) -> bytes | None:
    """The directory of a node's replica, if it is known."""
    if node not in state.replicas or not state.directories:
        return None
    return state.directories[state.replicas.index(node)]


class AssignmentRequests:
    """Sends what `wanted` returns to the controller, and again until it returns nothing."""

    def __init__(
        self,
        broker: "Broker",
        wanted: Callable[[], Assignments],
        failure: str,
        on_unsupported: Callable[[], None] | None = None,
    ) -> None:
        self._broker = broker
        self._wanted = wanted
        self._failure = failure
        """The message that is logged with the reason when a request fails."""
        self._on_unsupported = on_unsupported
        """Called instead of a request if the controller has no directories."""
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._is_closed = False

    def send_soon(self) -> None:
        """The wanted assignments may have changed."""
        self._wake.set()
        if self._task is None and not self._is_closed:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop sending."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            # Not within a change of the metadata that is being applied.
            await asyncio.sleep(0)
            while wanted := self._wanted():
                self._wake.clear()
                await self._send(wanted)
                with suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_DELAY_MS / 1000):
                        await self._wake.wait()
        except Exception as bug:  # noqa: BLE001 - reported
            self._broker.bugs.report(bug, self._failure)
        finally:
            self._task = None

    async def _send(self, wanted: Assignments) -> None:
        broker = self._broker
        if self._on_unsupported and broker.metadata.image.metadata_level < DIRECTORIES_LEVEL:
            self._on_unsupported()
            return
        try:
            response = await broker.controller.request(_request(broker, wanted), timeout_ms=TIMEOUT_MS)
        except ApiError as error:
            log.warning("%s, will retry: %s", self._failure, error)
            return
        error_code = ErrorCode.from_code(response.error_code)
        if self._on_unsupported and error_code is ErrorCode.UNSUPPORTED_VERSION:
            self._on_unsupported()
        elif error_code is not ErrorCode.NONE:
            log.warning("%s, will retry: %s", self._failure, error_code.name)


def _request(broker: "Broker", wanted: Assignments) -> AssignReplicasToDirsRequest:
    directories: dict[bytes, dict[bytes, list[PartitionData]]] = defaultdict(lambda: defaultdict(list))
    for name, directory in wanted.items():
        topic_id = broker.metadata.image.topics[name.topic].id
        directories[directory][topic_id].append(PartitionData(name.partition))
    return AssignReplicasToDirsRequest(
        broker.node_id,
        broker.epoch,
        [
            DirectoryData(directory, [TopicData(topic_id, found) for topic_id, found in topics.items()])
            for directory, topics in directories.items()
        ],
    )
