"""Large requests in slices: the event loop serves other connections between one slice and the next.

    request ──cut──▶ slice, slice, slice … ──handler──▶ response of each ──merge──▶ one response

A slice is a request of the same kind that names a part of what the whole one names. An element that is too
large for one slice (a topic with many partitions) is cut as well, and the parts of its response are joined.
Each slice is a request of its own for its handler. Handlers refuse what is named twice within a request, so
duplicates are put into the same slice (`Slicing.prepare`). What is decided as a whole is not sliced.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from runnel.broker.runtime.blocking import Job
from runnel.broker.runtime.context import Encoded
from runnel.broker.runtime.promise import MaybePromise, settled
from runnel.model.limits import PRODUCED_PER_SLICE, SLICE_ELEMENTS, SLICE_RECORDS_BYTES
from runnel.ports.service import CloseConnection
from runnel.wire import Response, Struct, fields_of
from runnel.wire.primitives import RECORDS, ArrayOf

if TYPE_CHECKING:
    from runnel.broker.apis.handlers import Handler
    from runnel.broker.runtime.context import Context

T = TypeVar("T")

TEXT_BYTES_PER_ELEMENT = 64
"""A text of this size costs about as much as another element."""


@dataclass(frozen=True, slots=True)
class Slicing:
    """Which arrays of a request are cut, from the outermost inwards, and those of its response."""

    request: tuple[str, ...]
    response: tuple[str, ...]
    prepare: Callable[[Any], None] | None = None
    """Changes the request before it is cut, in a thread."""
    keep: Callable[[Any, "Context"], None] | None = None
    """Keeps what the request has borrowed, before the memory of its frame is reused."""
    copy: Callable[[Any], None] | None = None
    """Copies what is borrowed, in a thread, if slices wait for each other: they would borrow it for long."""
    elements: int = SLICE_ELEMENTS
    """How large a slice is."""
    is_pipelined: Callable[[Any], bool] = lambda request: False
    """Whether a slice need not be answered before the next one is handled: it is decided at once."""
    is_costly: Callable[[Any, "Context"], bool] = lambda request, ctx: False
    """Whether each innermost element of a slice needs one of its own."""


def in_slices(handler: "Handler", slicings: Sequence[Slicing]) -> "Handler":
    """A handler that serves large requests in slices, by the first slicing whose array is not empty."""

    def sliced_handler(request: Any, ctx: "Context") -> MaybePromise[Response | Encoded | None]:
        for slicing in slicings:
            if getattr(request, slicing.request[0]):
                # Not all of a large request is examined: whether its slices are costly is decided for each.
                is_large = weighs_more(request, slicing.request, slicing.elements)
                if is_large or slicing.is_costly(request, ctx):
                    ctx.is_large = True
                    if slicing.keep is not None:
                        slicing.keep(request, ctx)
                    return ctx.broker.run(_begin(handler, slicing, request, ctx))
                break
        result: MaybePromise[Response | Encoded | None] = handler(request, ctx)
        return result

    return sliced_handler


def _begin(
    handler: "Handler", slicing: Slicing, request: Any, ctx: "Context"
) -> Coroutine[Any, Any, Response | Encoded | None]:
    serving = _serve(handler, slicing, request, ctx)
    if ctx.loan is None or slicing.copy is None or slicing.is_pipelined(request):
        return while_lent(serving, ctx)
    copying: Coroutine[Any, Any, None] = while_lent(
        ctx.broker.disk.run_blocking(Job(partial(slicing.copy, request))), ctx
    )
    ctx.loan = None

    async def copied_first() -> Response | Encoded | None:
        try:
            await copying
        except BaseException:
            serving.close()
            raise
        return await settled(await serving)

    return copied_first()


async def _serve(
    handler: "Handler", slicing: Slicing, request: Any, ctx: "Context"
) -> MaybePromise[Response | Encoded | None]:
    if slicing.prepare is not None:
        await ctx.broker.disk.run_blocking(Job(partial(slicing.prepare, request)))
    is_pipelined = slicing.is_pipelined(request)
    pending: list[tuple[Any, int]] = []
    whole: Any = None
    refusal: CloseConnection | None = None
    for part, joined_levels in _slices(slicing, request, ctx):
        try:
            response: Any = with_loan(partial(handler, part, ctx), ctx)
            if is_pipelined:
                pending.append((response, joined_levels))
                response = None
            response = await settled(response)
        except CloseConnection as error:
            # With acks=0, the other partitions are appended as well before the connection is closed.
            response, refusal = None, refusal or error
        if isinstance(response, Encoded) or getattr(response, "error_code", None):
            refused: Response | Encoded = response
            return refused
        whole = merged(whole, response, slicing, joined_levels)
        await asyncio.sleep(0)
    if refusal is not None:
        raise refusal
    return ctx.broker.run(_joined(pending, slicing)) if pending else whole


async def _joined(pending: list[tuple[Any, int]], slicing: Slicing) -> Any:
    """The response of slices that are handled, and wait for their commits."""
    whole: Any = None
    for response, joined_levels in pending:
        whole = merged(whole, await settled(response), slicing, joined_levels)
    return whole


def merged(whole: Any, response: Any, slicing: Slicing, joined_levels: int) -> Any:
    """The responses so far, with that of the next slice; None is no response."""
    if whole is None or response is None:
        return whole or response
    merge(whole, response, slicing.response, joined_levels)
    return whole


def _slices(slicing: Slicing, request: Any, ctx: "Context") -> Iterator[tuple[Struct, int]]:
    for part, joined_levels in cut(request, slicing.request, slicing.elements):
        if slicing.is_costly(part, ctx):
            joined = joined_levels
            for single, single_joined in cut(part, slicing.request, 1):
                yield single, single_joined or joined
                joined = 0
        else:
            yield part, joined_levels


def while_lent(task: Awaitable[MaybePromise[T]], ctx: "Context") -> Coroutine[Any, Any, T]:
    """Borrow the memory of a request, at once, until the task has handled it.

    Not until it is answered: followers, which may need memory for their fetches, may have to be waited for.
    """
    loan = ctx.loan
    if loan is not None:
        loan.borrow()

    async def lent() -> T:
        try:
            result = await task
        finally:
            if loan is not None:
                loan.done()
        return await settled(result)

    return lent()


def with_loan(handle: Callable[[], T], ctx: "Context") -> T:
    """Handle a request outside of its turn, and write what it stages, with the memory that it is in."""
    try:
        return handle()
    finally:
        if ctx.keeps_records:
            ctx.broker.turn.finish(ctx.loan)


def weighs_more(element: Any, arrays: Sequence[str], limit: int) -> bool:
    """Whether an element weighs more than `limit`, without looking at much more than that of it."""
    if not arrays or not isinstance(element, Struct):
        return weight(element, arrays) > limit
    inner = getattr(element, arrays[0]) or ()
    if len(inner) >= limit:
        return True
    room = limit - 1
    for part in inner:
        if weighs_more(part, arrays[1:], room):
            return True
        room -= weight(part, arrays[1:])
    return room < 0


def weight(element: Any, arrays: Sequence[str]) -> int:
    """About how many elements an element holds, itself included."""
    if isinstance(element, (str, bytes)):
        return 1 + len(element) // TEXT_BYTES_PER_ELEMENT
    if not isinstance(element, Struct):
        return 1
    if not arrays:
        return 1 + sum(len(getattr(element, name) or ()) // unit for name, unit in _weights_of(type(element)))
    inner = getattr(element, arrays[0]) or ()
    # Numbers, of which there may be many, weigh the same.
    if inner and isinstance(inner[0], int):
        return 1 + len(inner)
    return 1 + sum(weight(part, arrays[1:]) for part in inner)


def cut(request: Struct, arrays: Sequence[str], weight_max: int) -> Iterator[tuple[Struct, int]]:
    """Requests that together name what this one names, each with at how many levels it continues the last."""
    for elements, joined_levels in _chunks(getattr(request, arrays[0]), arrays[1:], weight_max):
        part = copy(request)
        setattr(part, arrays[0], elements)
        yield part, joined_levels


def _chunks(elements: list[Any], arrays: Sequence[str], weight_max: int) -> Iterator[tuple[list[Any], int]]:
    chunk: list[Any] = []
    room = weight_max
    for element in elements:
        is_large = weighs_more(element, arrays, weight_max)
        own = weight_max + 1 if is_large else weight(element, arrays)
        if own > room and chunk and not _is_second(element, chunk):
            yield chunk, 0
            chunk, room = [], weight_max
        if is_large and arrays:
            joined = 0
            for inner, inner_joined in _chunks(getattr(element, arrays[0]), arrays[1:], weight_max):
                part = copy(element)
                setattr(part, arrays[0], inner)
                yield [part], joined and inner_joined + 1
                joined = 1
            continue
        chunk.append(element)
        room -= own
    if chunk:
        yield chunk, 0


def _is_second(element: Any, chunk: list[Any]) -> bool:
    """Whether the last element is the same object, once: a duplicate, which its handler refuses."""
    return element is chunk[-1] and (len(chunk) < 2 or chunk[-2] is not element)


def merge(whole: Any, part: Any, arrays: Sequence[str], joined_levels: int) -> None:
    """Add the response of the next slice; its first element may continue the last one that is there."""
    elements, added = getattr(whole, arrays[0]), getattr(part, arrays[0])
    if joined_levels and elements and added and _is_same(elements[-1], added[0], arrays[1]):
        merge(elements[-1], added[0], arrays[1:], joined_levels - 1)
        added = added[1:]
    elements.extend(added)


def _is_same(one: Struct, other: Struct, array: str) -> bool:
    names = [field.name for field in fields_of(type(one)) if field.name != array]
    return all(getattr(one, name) == getattr(other, name) for name in names)


@cache
def _weights_of(struct: type[Struct]) -> list[tuple[str, int]]:
    """The fields of an element that have a weight, each with the length that weighs as much as an element."""
    weights = [(field.name, 1) for field in fields_of(struct) if isinstance(field.type, ArrayOf)]
    unit = SLICE_RECORDS_BYTES // PRODUCED_PER_SLICE
    return weights + [(field.name, unit) for field in fields_of(struct) if field.type is RECORDS]
