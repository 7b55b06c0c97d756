"""A fetch from very many partitions, read in slices between which other connections are served.

It gets no fetch session, as if all slots were taken, and is not woken by new records: below `min.bytes`, all
partitions are read once more after `max.wait.ms`, but no later than after a second.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from runnel.broker.apis.replica_requests import is_replica
from runnel.broker.runtime.fetch_sessions import FINAL_EPOCH
from runnel.broker.runtime.promise import MaybePromise, settled
from runnel.broker.runtime.slices import cut, merge
from runnel.messages.fetch import FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from runnel.model.errors import ErrorCode
from runnel.model.limits import FETCH_PARTITIONS_MAX, SLICE_ELEMENTS

if TYPE_CHECKING:
    from runnel.broker.apis.handlers import Handler, Result
    from runnel.broker.runtime.context import Context

WAIT_MAX_MS = 1000
_REQUEST_ARRAYS, _RESPONSE_ARRAYS = ("topics", "partitions"), ("responses", "partitions")


def fetch_in_slices(handler: "Handler") -> "Handler":
    """The handler of Fetch, which serves larger requests in slices."""

    def fetch(request: FetchRequest, ctx: "Context") -> "Result":
        is_small = _largest(request.topics, request.forgotten_topics_data) <= FETCH_PARTITIONS_MAX
        if is_small or is_replica(request):
            return handler(request, ctx)
        if request.session_id:
            # The client starts over with a full fetch, and gets no session for it.
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND.code)
        ctx.is_large = True
        return ctx.broker.run(_serve(handler, request, ctx))

    return fetch


def _largest(*arrays: Sequence[FetchTopic | ForgottenTopic]) -> int:
    """How many topics or partitions the larger array has."""
    return max(max(len(topics), sum(len(topic.partitions) for topic in topics)) for topics in arrays)


async def _serve(handler: "Handler", request: FetchRequest, ctx: "Context") -> FetchResponse:
    response, is_enough = await _read(handler, request, ctx)
    if not is_enough and request.max_wait_ms > 0:
        await asyncio.sleep(min(request.max_wait_ms, WAIT_MAX_MS) / 1000)
        if not ctx.is_permission_current:
            # The permission to read may be revoked: the next request is authorized again.
            return FetchResponse()
        response, _ = await _read(handler, request, ctx)
    return response


async def _read(handler: "Handler", request: FetchRequest, ctx: "Context") -> tuple[FetchResponse, bool]:
    whole: FetchResponse | None = None
    size_bytes, has_failed = 0, False
    for part, joined_levels in cut(request, _REQUEST_ARRAYS, SLICE_ELEMENTS):
        assert isinstance(part, FetchRequest)
        part.session_epoch = FINAL_EPOCH
        part.max_wait_ms = part.min_bytes = 0
        part.max_bytes = max(request.max_bytes - size_bytes, 0)
        part.forgotten_topics_data = []
        pending: MaybePromise[Any] = handler(part, ctx)
        response: FetchResponse = await settled(pending)
        for topic in response.responses:
            size_bytes += sum(_records_bytes(data.records) for data in topic.partitions)
            has_failed = has_failed or any(data.error_code for data in topic.partitions)
        if whole is None:
            whole = response
        else:
            merge(whole, response, _RESPONSE_ARRAYS, joined_levels)
        await asyncio.sleep(0)
    if whole is None:
        whole = FetchResponse()
    return whole, has_failed or size_bytes >= request.min_bytes


def _records_bytes(records: Any) -> int:
    size_bytes = getattr(records, "size_bytes", None)
    return len(records or b"") if size_bytes is None else int(size_bytes)
