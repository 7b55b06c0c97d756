"""Creation of topics: decided by the active controller, and requested by any broker on first use."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING

from runnel.controller.internal_topics import automatic_topic
from runnel.controller.topic_changes import (
    ChargeChange,
    DescribeTopicConfigs,
    Randomness,
    decide_create_topics,
    free_of_charge,
)
from runnel.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import NO_LEADER

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

WAIT_MS = 1000
"""How long clients' requests wait for a new topic; then they get a retriable error.

Further requests for it do not wait again: on a full disk no topic can be created, and a request that waits
delays those that follow it on its connection.
"""

REQUEST_TIMEOUT_MS = 30_000
"""How long to search for the controller."""


def chance(broker: "Broker") -> Randomness:
    """Randomness for new topics."""
    topic_ids = (broker.entropy.id_bytes() for _ in repeat(None))
    return Randomness(topic_ids, broker.entropy.below(max(1, len(broker.metadata.image.brokers))))


async def create_topics(
    broker: "Broker",
    request: CreateTopicsRequest,
    describe_configs: DescribeTopicConfigs | None = None,
    charge: ChargeChange = free_of_charge,
) -> CreateTopicsResponse:
    """As the active controller: create topics; they are available on return."""
    settings = broker.metadata.settings
    return await broker.metadata.change(
        lambda image: decide_create_topics(image, settings, request, chance(broker), describe_configs, charge)
    )


class AutoCreation:
    """Topics that this broker has the controller create, with the settings of this broker."""

    __slots__ = ("_broker", "_deadlines_ms", "_running")

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._running: dict[str, asyncio.Task[dict[str, ErrorCode]]] = {}
        """Topics that are being created; further requests wait for the same creation."""
        self._deadlines_ms: dict[str, int] = {}
        """Until when requests wait for them."""

    async def create(self, names: Iterable[str]) -> dict[str, ErrorCode]:
        """Create topics unless they exist; returns an error code for each name, after a limited time."""
        wanted, now_ms = list(dict.fromkeys(names)), self._broker.clock.monotonic_ms()
        new = [name for name in wanted if name not in self._running]
        if new:
            task = asyncio.get_running_loop().create_task(self._create(new))
            self._running.update(dict.fromkeys(new, task))
            self._deadlines_ms.update(dict.fromkeys(new, now_ms + WAIT_MS))
        tasks = {name: self._running[name] for name in wanted}
        wait_ms = max(self._deadlines_ms[name] for name in wanted) - now_ms
        done, _ = await asyncio.wait(set(tasks.values()), timeout=max(wait_ms, 0) / 1000)
        return {
            name: task.result()[name] if task in done else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for name, task in tasks.items()
        }

    async def ensure_internal(self, name: str) -> None:
        """Create a coordinator's topic unless it exists. Raises COORDINATOR_NOT_AVAILABLE."""
        if name in self._broker.metadata.image.topics:
            return
        error = (await self.create([name]))[name]
        if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} is being created")
        if error is not ErrorCode.NONE:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} cannot be created: {error.name}")

    async def _create(self, names: list[str]) -> dict[str, ErrorCode]:
        try:
            return await self._request(names)
        except ApiError as error:
            return dict.fromkeys(names, error.error)
        finally:
            for name in names:
                del self._running[name], self._deadlines_ms[name]

    async def _request(self, names: list[str]) -> dict[str, ErrorCode]:
        broker = self._broker
        topics = [automatic_topic(broker.metadata.image, broker.settings, name) for name in names]
        request = CreateTopicsRequest(topics, timeout_ms=REQUEST_TIMEOUT_MS)
        response: CreateTopicsResponse = await broker.controller.request(
            request, timeout_ms=REQUEST_TIMEOUT_MS
        )
        errors = {result.name: ErrorCode.from_code(result.error_code) for result in response.topics}
        for name, error in errors.items():
            if error is ErrorCode.TOPIC_ALREADY_EXISTS:
                # Created concurrently, or the response to the same request was lost.
                errors[name] = ErrorCode.NONE
        created = [name for name, error in errors.items() if error is ErrorCode.NONE]
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_MS / 1000):
                while not all(map(self._is_led, created)):
                    await broker.metadata.changed()
        return {name: errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name in names}

    def _is_led(self, name: str) -> bool:
        """Whether a topic is in the image of this broker, and a leader is known for each partition."""
        topic = self._broker.metadata.image.topics.get(name)
        return topic is not None and all(state.leader != NO_LEADER for state in topic.partitions)
