"""Work for other brokers, batched into requests: one in flight per broker, and what arrives meanwhile queues.

    add ──▶ queue of the broker ──no request in flight──▶ request ──▶ answered, or failed
                                                            │ another broker is responsible by now
                                                            └──▶ failed at once; the response is ignored

A broker that does not respond delays only what it is responsible for, until the metadata names another.
"""

from abc import ABC, abstractmethod
from asyncio import Future, get_running_loop
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from runnel.model.errors import ApiError
from runnel.ports.clock import TimerHandle
from runnel.ports.peers import Channel, PeerFailed
from runnel.wire import Request

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

REQUEST_TIMEOUT_MS = 30_000
"""Kafka's request.timeout.ms of brokers."""

CHECK_INTERVAL_MS = 100
"""How often it is checked whether another broker is responsible for what is in flight."""

Item = TypeVar("Item")


class _Queue(Generic[Item]):
    """What is to be sent to one broker."""

    __slots__ = ("channel", "in_flight", "request", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Item] = deque()
        self.in_flight: list[Item] = []
        """The contents of the request in flight, except for what has failed already."""
        self.request: Future[Any] | None = None
        self.channel: Channel | None = None


class NodeQueues(ABC, Generic[Item]):
    """The queues to all brokers for one kind of request."""

    purpose: str
    """The purpose of the connections."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._queues: dict[int, _Queue[Item]] = {}
        self._check: TimerHandle | None = None

    def add(self, node_id: int, *items: Item) -> None:
        """Send items to a broker, now or with the next request."""
        queue = self._queues.get(node_id)
        if queue is None:
            queue = self._queues[node_id] = _Queue()
        queue.waiting.extend(items)
        if queue.request is None:
            self._send(node_id, queue)

    def stop(self) -> None:
        """Fail everything that is not answered."""
        if self._check is not None:
            self._check.cancel()
            self._check = None
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            items = [*queue.in_flight, *queue.waiting]
            queue.in_flight = []
            queue.waiting.clear()
            self._failed(items, PeerFailed("this broker is stopping"))

    @abstractmethod
    def _take(self, waiting: deque[Item]) -> list[Item]:
        """Take what the next request contains; nothing if there is nothing left to send."""

    @abstractmethod
    def _request(self, items: list[Item]) -> Request:
        """The request for these items."""

    @abstractmethod
    def _answered(self, items: list[Item], response: Any) -> None:
        """The broker responded."""

    @abstractmethod
    def _failed(self, items: list[Item], error: Exception) -> None:
        """There is no response: the items may or may not have had an effect."""

    @abstractmethod
    def _responsible(self, item: Item) -> int:
        """The broker that is responsible for an item according to the metadata."""

    def _send(self, node_id: int, queue: _Queue[Item]) -> None:
        items = self._take(queue.waiting)
        if not items:
            return
        queue.in_flight = items
        try:
            queue.channel = self._broker.links.to(node_id, self.purpose)
            queue.request = queue.channel.send(self._request(items), timeout_ms=REQUEST_TIMEOUT_MS)
        except (ApiError, PeerFailed) as error:
            # As if it was sent: the items must not fail while their sender still adds them.
            queue.request = get_running_loop().create_future()
            queue.request.set_exception(error)
        queue.request.add_done_callback(partial(self._done, node_id, queue))
        if self._check is None:
            self._check = self._broker.timers.call_later(CHECK_INTERVAL_MS, self._check_responsible)

    def _done(self, node_id: int, queue: _Queue[Item], request: "Future[Any]") -> None:
        queue.request = None
        items, queue.in_flight = queue.in_flight, []
        if request.cancelled() or self._queues.get(node_id) is not queue:
            return
        error = request.exception()
        try:
            if isinstance(error, Exception):
                if not isinstance(error, (ApiError, PeerFailed)):
                    self._broker.bugs.report(error, "a request to broker %d failed", node_id)
                self._failed(items, error)
            else:
                self._answered(items, request.result())
        finally:
            # An item that failed may have been added again, and sent.
            if queue.request is None:
                self._send(node_id, queue)

    def _check_responsible(self) -> None:
        self._check = None
        for node_id, queue in list(self._queues.items()):
            if queue.request is None:
                continue
            moved = [item for item in queue.in_flight if self._responsible(item) != node_id]
            if moved:
                queue.in_flight = [item for item in queue.in_flight if self._responsible(item) == node_id]
                self._failed(moved, PeerFailed(f"broker {node_id} is no longer responsible"))
            if not queue.in_flight and queue.channel is not None and not queue.request.done():
                # Nothing waits for the response, which may never arrive.
                queue.channel.close()
        if any(queue.request is not None for queue in self._queues.values()):
            self._check = self._broker.timers.call_later(CHECK_INTERVAL_MS, self._check_responsible)
