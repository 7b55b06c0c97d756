"""Server-sent events: `id` is the cursor after a message, from which a client resumes by Last-Event-ID."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from runnel.client.cluster import TopicView
from runnel.client.errors import ClientError
from runnel.gateway.http.limits import STREAMS_MAX, STREAMS_PRINCIPAL_SHARE
from runnel.gateway.http.models import Gap, SubscribeQuery
from runnel.gateway.http.polling import Subscription, subscription
from runnel.gateway.http.principals import Principal, Principals
from runnel.gateway.http.problems import Problem, problem_of
from runnel.gateway.http.requests import Call
from runnel.gateway.http.responses import PartStream
from runnel.gateway.http.streams.feeds import Entry
from runnel.gateway.http.streams.following import check_partitions, follow

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

RETRY = b"retry: 3000\n\n"
BEAT = b": still here\n\n"
HEADERS = {"x-accel-buffering": "no"}
LAST_EVENT_ID = "last-event-id"


def check_room(principals: Principals, principal: Principal, view: TopicView, query: SubscribeQuery) -> None:
    """503 or 429 if there are too many streams, 422 if every event would be too large."""
    if principals.streams >= STREAMS_MAX:
        raise Problem(503, "too many streams are open")
    if principals.has_logins and principal.feeds.streams >= STREAMS_MAX * STREAMS_PRINCIPAL_SHARE:
        raise Problem(429, "too many streams of this principal are open")
    check_partitions(view, query)


async def event_stream(call: Call, view: TopicView, query: SubscribeQuery) -> Response:
    """Messages as they arrive, from now on, or from where the client says."""
    check_room(call.api.principals, call.principal, view, query)
    # It was sent by an earlier stream of the same address, so it is later than what that says. The stream of
    # a group is not a replay because of it: its acks move the group.
    last = call.request.headers.get(LAST_EVENT_ID)
    found = await subscription(call.cluster, view, query, "latest", last)
    return EventStream(_events(call.principal, found), HEADERS)


class EventStream(PartStream):
    """A stream of events, which ends when its client goes."""

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Send events, and notice meanwhile if the client closes the connection."""
        serving = asyncio.current_task()
        assert serving is not None
        watching = asyncio.create_task(_watch(receive, serving))
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:
            if not watching.done() or watching.cancelled():
                raise
            serving.uncancel()
        finally:
            watching.cancel()


async def _watch(receive: "Receive", serving: "asyncio.Task[None]") -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    serving.cancel()


async def _events(principal: Principal, found: Subscription) -> AsyncGenerator[bytes]:
    yield RETRY
    principal.feeds.streams += 1
    try:
        async with aclosing(follow(principal.feeds, found)) as parts:
            async for part in parts:
                yield b"".join(map(_encoded, part)) or BEAT
    except ClientError as error:
        yield _failed(problem_of(error))
    except Problem as problem:
        yield _failed(problem)
    finally:
        principal.feeds.streams -= 1


def _encoded(item: Entry | Gap) -> bytes:
    if isinstance(item, Entry):
        return item.event
    return b"event: gap\ndata: %b\n\n" % msgspec.json.encode(item)


def _failed(problem: Problem) -> bytes:
    return b"event: error\ndata: %b\n\n" % msgspec.json.encode(problem.details)
