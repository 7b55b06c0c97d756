"""Requests of this node to the active controller: in process if it is this node, else over the network.

A controller serves the requests of one connection one after the other. So that a slow one does not delay
those on which the acknowledgement of records depends, each purpose has a connection of its own.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import Promise, settled
from runnel.messages.add_raft_voter import AddRaftVoterRequest
from runnel.messages.alter_partition import AlterPartitionRequest
from runnel.messages.create_topics import CreateTopicsRequest
from runnel.messages.envelope import EnvelopeRequest
from runnel.messages.registry import api
from runnel.model.errors import ApiError, ErrorCode, NotController
from runnel.ports.peers import Channel, PeerClosed, PeerFailed, PeerUnsupported
from runnel.ports.service import Session
from runnel.wire import Request

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

RETRY_DELAY_MS = 20
"""How long to wait for another controller after one was unavailable: Kafka's quorum retry backoff."""

CLOSED_MAX = 5
"""A request is not repeated if this many connections were closed instead of a response: it may be the cause.
The delays in between grow, as that fails the other requests on the connection, too."""

LOCAL_CONNECTION = -1
"""The connection id of requests that this node makes to itself."""


class ControllerChannel:
    """Sends requests to the active controller, on this node or another."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._channels: dict[str, tuple[tuple[int, str, int], Channel]] = {}
        """By purpose: the node and address of the controller, and the channel to it."""
        self.forwarded_bytes = 0
        """The size of the requests of clients that wait for a response."""
        self.on_lost: Callable[[], None] | None = None
        """Called when the connection to the controller is lost."""

    @property
    def is_active(self) -> bool:
        """Is this node the active controller?"""
        return self._broker.metadata.is_active

    @property
    def must_forward(self) -> bool:
        """Is another node the active controller, or about to be?"""
        metadata = self._broker.metadata
        return not metadata.is_active and not metadata.is_sole_voter

    async def request(self, request: Request, *, timeout_ms: int = 30_000) -> Any:
        """The response of the active controller.

        Retries until the controller answers; REQUEST_TIMED_OUT after `timeout_ms`. A request whose response
        was lost is repeated, so it must be idempotent.
        """
        clock, purpose = self._broker.clock, _purpose(request)
        name = type(request).__name__.removesuffix("Request")
        deadline_ms = clock.monotonic_ms() + timeout_ms
        closed = 0
        while (left_ms := deadline_ms - clock.monotonic_ms()) > 0:
            delay_ms = RETRY_DELAY_MS
            try:
                response = await self._attempt(request, purpose, left_ms)
                if not is_not_controller(response):
                    return response
            except PeerUnsupported as error:
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from error
            except PeerClosed as error:
                closed += 1
                if closed == CLOSED_MAX:
                    reason = f"{name} was answered with closed connections {closed} times: {error}"
                    raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, reason) from error
                delay_ms = RETRY_DELAY_MS * 4 ** (closed - 1)
                self._close(purpose)
            except (PeerFailed, NotController):
                self._close(purpose)
            await asyncio.sleep(min(delay_ms, left_ms) / 1000)
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"no controller answered {name} within {timeout_ms} ms")

    def close(self) -> None:
        """Close the connections to the controller."""
        for purpose in list(self._channels):
            self._close(purpose)

    def _close(self, purpose: str) -> None:
        if purpose in self._channels:
            self._channels.pop(purpose)[1].close()

    async def _attempt(self, request: Request, purpose: str, timeout_ms: int) -> Any:
        """Raises NotController or PeerFailed."""
        if self.is_active:
            return await self._call_here(request)
        endpoint = self._broker.metadata.controller_endpoint()
        if endpoint is None or endpoint[0] == self._broker.node_id:
            # No leader is known, or this node was elected and has not committed a record of its epoch yet.
            raise NotController("no active controller is known")
        known = self._channels.get(purpose)
        if known is None or known[0] != endpoint:
            self._close(purpose)
            _, host, port = endpoint
            name = f"broker-{self._broker.node_id}-{purpose}"
            channel = self._broker.to_controllers.channel(host, port, name)
            channel.on_lost = self.on_lost
            known = self._channels[purpose] = endpoint, channel
        return await self._response(known[1].send(request, timeout_ms=timeout_ms), endpoint, purpose)

    async def _response(
        self, sent: "asyncio.Future[Any]", endpoint: tuple[int, str, int], purpose: str
    ) -> Any:
        """The response, unless another controller is elected before: one that is paused never answers."""
        metadata = self._broker.metadata
        while not sent.done():
            changed = asyncio.ensure_future(metadata.changed())
            try:
                await asyncio.wait((sent, changed), return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
            if self.is_active or metadata.controller_endpoint() not in (None, endpoint):
                # The requests in flight fail, and are sent to the next one.
                self._close(purpose)
        return sent.result()

    async def _call_here(self, request: Request) -> Any:
        # Imported late: the handlers import this module's users.
        from runnel.broker.apis.handlers import handler_of
        from runnel.broker.runtime.call import error_response

        session = Session("127.0.0.1", 0, self._broker.listener, LOCAL_CONNECTION)
        context = Context(self._broker, session, request.versions[-1], None)
        try:
            result = handler_of(request.api_key)(request, context)
            return await settled(result) if isinstance(result, Promise) else result
        except ApiError as error:
            # As over the network.
            messages = api(request.api_key)
            response = error_response(messages.response, request.versions[-1], error.code, str(error))
            if response is None:
                raise
            return response


def is_not_controller(response: Any) -> bool:
    """Does the response state that the node is not the active controller?"""
    return getattr(response, "error_code", 0) == ErrorCode.NOT_CONTROLLER.code


def _purpose(request: Request) -> str:
    """Which connection a request uses."""
    if isinstance(request, AlterPartitionRequest):
        return "alter-partition"
    if isinstance(request, EnvelopeRequest):
        # A new voter has to catch up first.
        is_slow = int.from_bytes(request.request_data[:2], "big") == AddRaftVoterRequest.api_key
        return "voters" if is_slow else "forwarding"
    return "forwarding" if isinstance(request, CreateTopicsRequest) else "controller"
