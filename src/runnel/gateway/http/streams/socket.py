"""WebSocket: messages as they arrive, as many as the client has granted; acks and publishes on the same line.

    client → {"type": "credit", "messages": 50}      server → {"type": "message", "cursor": …, …}
             {"type": "ack", "messageId": …}                   {"type": "acknowledged", "committed": […]}
             {"type": "publish", "record": {…}}                {"type": "published", messageId, …}
                                                               {"type": "gap", …}, {"type": "error", …}

A client's `id` is repeated in the answer. When busy, the server closes with 1013: try again later.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.websockets import WebSocket, WebSocketDisconnect

from runnel.client.cluster import TopicView
from runnel.client.errors import ClientError
from runnel.gateway.http.bodies import SHARE
from runnel.gateway.http.limits import (
    SOCKET_CREDIT_MAX,
    SOCKET_ID_CHARACTERS,
    SOCKET_IN_FLIGHT_BYTES,
    SOCKET_IN_FLIGHT_MAX,
    STREAM_STUCK_S,
)
from runnel.gateway.http.models import (
    AckRequest,
    CommittedOffset,
    Gap,
    MessageIdText,
    Published,
    SubscribeQuery,
)
from runnel.gateway.http.operations import Operation
from runnel.gateway.http.polling import acknowledged, subscription
from runnel.gateway.http.principals import Principal
from runnel.gateway.http.problems import Problem, ProblemDetails, problem_of
from runnel.gateway.http.publishing import published, send
from runnel.gateway.http.records import GivenRecord, to_record
from runnel.gateway.http.requests import find_topic, read_query
from runnel.gateway.http.responses import ABORT
from runnel.gateway.http.streams.following import Part, follow
from runnel.gateway.http.streams.sse import check_room
from runnel.gateway.http.topic_names import check_may_change, check_topic_name
from runnel.gateway.metrics import ROUTE

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from runnel.gateway.http.api import Api

log = logging.getLogger("runnel.gateway")

GOING_AWAY = 1001
FAILED = 1011
BUSY = 1013
RequestId = (
    Annotated[str, Meta(max_length=SOCKET_ID_CHARACTERS)]
    | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
    | None
)


class CreditFrame(Struct, tag="credit", tag_field="type", forbid_unknown_fields=True):
    """The client takes this many more messages."""

    messages: Annotated[int, Meta(ge=1, le=SOCKET_CREDIT_MAX)]


class AckFrame(
    Struct,
    tag="ack",
    tag_field="type",
    forbid_unknown_fields=True,
    rename={"message_id": "messageId"},
):
    """A message was processed."""

    message_id: MessageIdText
    id: RequestId = None


class PublishFrame(Struct, tag="publish", tag_field="type", forbid_unknown_fields=True):
    """A record for the topic."""

    record: GivenRecord
    id: RequestId = None


class AcknowledgedFrame(Struct, tag="acknowledged", tag_field="type", omit_defaults=True):
    """The answer to an ack."""

    committed: list[CommittedOffset]
    id: RequestId = None


class PublishedFrame(Struct, tag="published", tag_field="type", omit_defaults=True, rename="camel"):
    """The answer to a publish."""

    message_id: str | None
    partition: int
    offset: int
    id: RequestId = None


class GapFrame(Struct, tag="gap", tag_field="type"):
    """Offsets that were deleted before they were read."""

    partition: int
    from_offset: int = msgspec.field(name="from")
    to_offset: int = msgspec.field(name="to")


class ErrorFrame(Struct, tag="error", tag_field="type", omit_defaults=True):
    """What went wrong; the stream goes on, unless it is closed next."""

    problem: ProblemDetails
    id: RequestId = None


ClientFrame = CreditFrame | AckFrame | PublishFrame
Changes = dict[Any, Operation]
"""What a frame does, by its type."""


class SocketEndpoint:
    """The WebSocket of a topic."""

    def __init__(self, api: "Api", operation: Operation, publishing: Operation, acking: Operation) -> None:
        self._api = api
        self._operation = operation
        self._changes: Changes = {PublishFrame: publishing, AckFrame: acking}

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        scope[ROUTE] = self._operation.path
        socket = WebSocket(scope, receive, send)
        try:
            async with self._api.principals.use(socket.headers.get("authorization")) as principal:
                share = scope.get("extensions", {}).get(SHARE)
                if share is not None:
                    share.belongs_to(principal)
                await self._serve(socket, principal)
        except (Problem, ClientError) as error:
            problem = error if isinstance(error, Problem) else problem_of(error)
            if problem.status in (429, 503):
                await socket.accept()
                await socket.close(BUSY, problem.detail[:100])
            else:
                await socket.send_denial_response(problem.response())
        except WebSocketDisconnect:
            pass

    async def _serve(self, socket: WebSocket, principal: Principal) -> None:
        self._api.check_may_serve(self._operation)
        query = read_query(socket.url.query, SubscribeQuery)
        name = str(socket.path_params["topic"])
        check_topic_name(name, status=404)
        view = await find_topic(principal.cluster, name)
        check_room(self._api.principals, principal, view, query)
        found = await subscription(principal.cluster, view, query, "latest")
        async with aclosing(follow(principal.feeds, found)) as parts:
            # What prevents that it begins is the response to the upgrade.
            await anext(parts)
            await socket.accept()
            conversation = Conversation(self._api, socket, principal, view, self._changes, query.credit)
            principal.feeds.streams += 1
            reading = asyncio.create_task(conversation.read())
            writing = asyncio.create_task(conversation.write(parts))
            try:
                await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                principal.feeds.streams -= 1
                reading.cancel()
                writing.cancel()
                await asyncio.gather(reading, writing, return_exceptions=True)
            await conversation.end(writing)


class Conversation:
    """An open WebSocket."""

    def __init__(
        self,
        api: "Api",
        socket: WebSocket,
        principal: Principal,
        view: TopicView,
        changes: Changes,
        credit: int,
    ) -> None:
        self._api = api
        self._socket = socket
        self._principal = principal
        self._view = view
        self._changes = changes
        self._credit = credit
        self._granted = asyncio.Event()
        self._in_flight: dict[asyncio.Task[None], int] = {}
        """Requests that are not answered, and their sizes."""
        self._in_flight_bytes = 0
        self._turn = asyncio.Lock()
        """Held by the publish that is handed to the producer."""

    async def read(self) -> None:
        """Serve what the client sends, until it closes."""
        try:
            while (message := await self._socket.receive())["type"] != "websocket.disconnect":
                text = message.get("text")
                data = message["bytes"] if text is None else text
                while self._is_busy(len(data)):
                    await asyncio.wait(self._in_flight, return_when=asyncio.FIRST_COMPLETED)
                task = asyncio.create_task(self._serve(data))
                self._in_flight[task] = len(data)
                self._in_flight_bytes += len(data)
                task.add_done_callback(self._served)
        finally:
            serving = list(self._in_flight)
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)

    def _is_busy(self, size_bytes: int) -> bool:
        """Does a request have to wait until another is answered?"""
        is_large = self._in_flight_bytes + size_bytes > SOCKET_IN_FLIGHT_BYTES
        return len(self._in_flight) >= SOCKET_IN_FLIGHT_MAX or (is_large and bool(self._in_flight))

    def _served(self, task: "asyncio.Task[None]") -> None:
        self._in_flight_bytes -= self._in_flight.pop(task)

    async def write(self, parts: AsyncIterator[Part]) -> None:
        """Send messages as long as there is credit."""
        async for part in parts:
            for item in part:
                if isinstance(item, Gap):
                    await self._send(GapFrame(item.partition, item.from_offset, item.to_offset))
                    continue
                while self._credit <= 0:
                    self._granted.clear()
                    await self._granted.wait()
                self._credit -= 1
                await self._send_text(item.frame)

    async def end(self, writing: "asyncio.Task[None]") -> None:
        """Close, and say why."""
        failure = None if writing.cancelled() else writing.exception()
        with suppress(RuntimeError, WebSocketDisconnect):
            if isinstance(failure, ClientError | Problem):
                problem = failure if isinstance(failure, Problem) else problem_of(failure)
                await self._send(ErrorFrame(problem.details))
                await self._socket.close(FAILED)
            else:
                await self._socket.close(GOING_AWAY)

    async def _serve(self, data: bytes | str) -> None:
        frame: Any = None
        try:
            try:
                frame = msgspec.json.decode(data, type=ClientFrame)
            except msgspec.ValidationError as error:
                raise Problem(422, f"the message is not valid: {error}") from None
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise Problem(400, f"the message is not JSON: {error}") from None
            answer = await self._answer(frame, len(data))
        except (Problem, ClientError) as error:
            problem = error if isinstance(error, Problem) else problem_of(error)
            answer = ErrorFrame(problem.details, getattr(frame, "id", None))
        except Exception:
            # A bug; the client must not wait forever.
            log.exception("a message of a WebSocket has failed")
            answer = ErrorFrame(Problem(500, "see the gateway's log").details, getattr(frame, "id", None))
        if answer is not None:
            with suppress(RuntimeError, WebSocketDisconnect):
                await self._send(answer)

    async def _answer(self, frame: ClientFrame, size_bytes: int) -> Struct | None:
        if isinstance(frame, CreditFrame):
            self._credit = min(self._credit + frame.messages, SOCKET_CREDIT_MAX)
            self._granted.set()
            return None
        self._api.check_may_serve(self._changes[type(frame)])
        if isinstance(frame, AckFrame):
            given = AckRequest(frame.message_id)
            done = await acknowledged(self._api.acks, self._principal.cluster, self._view.name, given)
            return AcknowledgedFrame(done.committed, frame.id)
        with self._api.bodies.held(size_bytes, self._principal):
            written = await self._publish(frame.record)
        return PublishedFrame(written.message_id, written.partition, written.offset, frame.id)

    async def _publish(self, given: GivenRecord) -> Published:
        record = to_record(given)
        # Metadata may have to be fetched for one and not for the next, which must not overtake it. Requests
        # ask for the lock in their order, and get it in that order.
        async with self._turn:
            view = await find_topic(self._principal.cluster, self._view.name)
            check_may_change(view)
            sent = await send(self._principal, view.name, record)
        return await published(view, sent)

    async def _send(self, frame: Struct) -> None:
        await self._send_text(msgspec.json.encode(frame).decode())

    async def _send_text(self, text: str) -> None:
        try:
            async with asyncio.timeout(STREAM_STUCK_S):
                await self._socket.send_text(text)
        except TimeoutError:
            abort = self._socket.scope.get("extensions", {}).get(ABORT)
            if abort is not None:
                abort()
            raise WebSocketDisconnect(BUSY) from None
