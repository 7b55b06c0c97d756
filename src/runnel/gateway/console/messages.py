"""The messages of a topic: browse, jump, look at one, and produce."""

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

from starlette.responses import HTMLResponse, Response

from runnel.client.cluster import TopicView
from runnel.client.offsets import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    end_offsets,
    offsets_since,
    start_offsets,
)
from runnel.client.producer import Producer
from runnel.gateway.console.dialogs import Done, Form, whole
from runnel.gateway.console.message_filter import BadFilter, MessageFilter, read_filter
from runnel.gateway.console.message_reading import (
    Positions,
    Slice,
    Source,
    cursor_text,
    newest,
    onwards,
    read_cursor,
    read_one,
)
from runnel.gateway.console.message_view import commands_of, decoded, editable, headers_text, row_of
from runnel.gateway.console.moments import AS_OF, as_of_ms, entered_ms
from runnel.gateway.console.pages import NO_STORE, Content, Refused, Visit
from runnel.gateway.console.templates_of import query
from runnel.gateway.console.topic import find_topic, refuse_internal
from runnel.gateway.registry.decoding import decoded_by_registry
from runnel.gateway.time_histogram import Stretch
from runnel.model.ids import TopicPartition
from runnel.visual.svg import twice
from runnel.visual.time_bars import TimeBar, TimeBars, merged

LIMIT = 50
HEADERS_SHOWN = 500
PARTITIONS_MAX = 1000
DELIVERY_TIMEOUT_S = 10.0
STARTS = ("newest", "oldest", "offset", "time")
HISTOGRAM_WIDTH = 1080.0
NARROW_BARS = 24


class Browsing:
    """What a person wants to see of a topic, from the address of the page."""

    def __init__(self, query: Mapping[str, str], topic: TopicView) -> None:
        self.topic = topic
        at = query.get("at", "newest")
        self.at = at if at in STARTS else "newest"
        self.offset = query.get("offset", "").strip()
        self.time = query.get("time", "").strip()
        self.committed = query.get("committed") == "1"
        self.partition = query.get("partition", "").strip()
        self.filter_text = query.get("filter", "").strip()
        self.cursor = read_cursor(query.get("cursor", ""), topic.name)
        self.as_of_ms = as_of_ms(query)

    @property
    def isolation(self) -> int:
        return READ_COMMITTED if self.committed else READ_UNCOMMITTED

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions to read: those with a leader, or the one that was chosen."""
        views = self.topic.partitions[:PARTITIONS_MAX]
        if self.partition.isdecimal() and len(self.partition) < 11:
            views = [view for view in views if view.partition == int(self.partition)]
            if not views:
                raise Refused(f"{self.topic.name} has no partition {self.partition}", 404)
        return [TopicPartition(self.topic.name, view.partition) for view in views if view.leader >= 0]

    def read_filter(self) -> MessageFilter:
        """The filter. Raises Refused."""
        try:
            return read_filter(self.filter_text)
        except BadFilter as error:
            raise Refused(str(error)) from None


async def range_of(visit: Visit, browsing: Browsing) -> tuple[Positions, Positions]:
    """The start and end offsets of what is browsed."""
    partitions = browsing.partitions
    if not partitions:
        return {}, {}
    low = await start_offsets(visit.cluster, partitions)
    high = await end_offsets(visit.cluster, partitions, isolation=browsing.isolation)
    if browsing.as_of_ms is not None:
        then = await offsets_since(visit.cluster, partitions, browsing.as_of_ms)
        high = {each: max(min(high[each], then[each]), low[each]) for each in high}
    return low, high


async def messages(visit: Visit) -> Content:
    """A page of messages, or the place where a search shows what it finds."""
    browsing = Browsing(visit.query, await find_topic(visit))
    values: dict[str, Any] = {"topic": browsing.topic, "browsing": browsing, "q": visit.query}
    if browsing.filter_text:
        browsing.read_filter()
        return Content("message_search.html", values)
    low, high = await range_of(visit, browsing)
    source = Source(visit.cluster, browsing.isolation)
    found = await _slice(visit, browsing, source, low, high)
    values.update(
        rows=[row_of(message) for message in found.messages],
        cursor=cursor_text(found.cursor) if found.has_more else "",
        total=sum(high[each] - low[each] for each in high),
        is_later=bool(browsing.cursor),
    )
    return Content("messages.html", values)


async def _slice(visit: Visit, browsing: Browsing, source: Source, low: Positions, high: Positions) -> Slice:
    if browsing.at == "newest":
        top = {each: min(max(browsing.cursor.get(each, high[each]), low[each]), high[each]) for each in high}
        return await newest(source, low, top, LIMIT)
    first = await _first(visit, browsing, low, high)
    start = {each: min(max(first[each], low[each]), high[each]) for each in high}
    return await onwards(source, start, high, LIMIT)


async def _first(visit: Visit, browsing: Browsing, low: Positions, high: Positions) -> Positions:
    if browsing.cursor:
        return {each: browsing.cursor.get(each, high[each]) for each in high}
    if browsing.at == "offset":
        if not browsing.offset.isdecimal() or len(browsing.offset) > 19:
            raise Refused("enter an offset: a whole number")
        return dict.fromkeys(high, int(browsing.offset))
    if browsing.at == "time":
        moment_ms = entered_ms(browsing.time)
        return await offsets_since(visit.cluster, list(high), moment_ms) if high else {}
    return low


async def histogram(visit: Visit) -> Response:
    """The records of a topic over time; each bar leads to the first of its records."""
    browsing = Browsing(visit.query, await find_topic(visit))
    stretch = Stretch(tuple(browsing.partitions), browsing.isolation, browsing.as_of_ms)
    intervals = await visit.data.histograms.get(stretch) if stretch.partitions else []
    path = visit.request.url.path.removesuffix("/histogram") + "/messages"
    kept = {name: visit.query.get(name, "") for name in ("partition", "committed", AS_OF)}
    bars = [
        TimeBar(
            each.start_ms,
            each.end_ms,
            each.count,
            query(path, at="time", time=f"@{each.start_ms}", **kept),
        )
        for each in intervals or ()
    ]
    title = f"Records of {browsing.topic.name} over time"

    def drawn(width: float) -> str:
        return TimeBars(title, bars if width == HISTOGRAM_WIDTH else merged(bars, NARROW_BARS)).draw(width)

    chart = twice(drawn, HISTOGRAM_WIDTH) if bars else ""
    html = visit.render("histogram.html", chart=chart, is_left_out=intervals is None)
    return HTMLResponse(html, headers=NO_STORE)


async def message(visit: Visit) -> Response:
    """One message, in the dialog."""
    name = visit.path("topic")
    partition, offset = visit.number("partition"), visit.number("offset")
    source = Source(visit.cluster)
    found = await read_one(source, TopicPartition(name, partition), offset)
    if found is None:
        raise Refused(f"there is no message at offset {offset} of {name}-{partition} (any more)", 404)
    visit.gateway.tracing.received(name, partition, offset, found.headers)
    wanted = visit.query.get("as", "")
    kind, text = await asyncio.to_thread(decoded, found.value, wanted)
    registered = await decoded_by_registry(visit.gateway.registry.store_of(visit.session), found.value)
    if registered is not None and wanted in ("", "schema"):
        kind, text = "schema", registered.text
    key_kind, key_text = await asyncio.to_thread(decoded, found.key, "")
    html = visit.render(
        "message.html",
        message=found,
        registered=registered,
        kind=kind,
        text=text,
        key_kind=key_kind,
        key_text=key_text,
        header_count=len(found.headers),
        headers=[
            (header, decoded(value, "text")[1], value is None)
            for header, value in found.headers[:HEADERS_SHOWN]
        ],
        commands=commands_of(found, visit.gateway.options.bootstrap),
    )
    return HTMLResponse(html, headers=NO_STORE)


# Producing.


async def show_produce(visit: Visit, form: Form) -> dict[str, Any]:
    """An empty form, or one with a message to send again."""
    topic = await find_topic(visit)
    values: dict[str, Any] = {"topic": topic, "copy_of": None, "filled": dict(form)}
    if visit.request.method == "GET" and "offset" in form:
        partition, offset = visit.number("partition"), visit.number("offset")
        found = await read_one(Source(visit.cluster), TopicPartition(topic.name, partition), offset)
        if found is None:
            raise Refused(f"there is no message at offset {offset} of {topic.name}-{partition}", 404)
        value, value_base64 = editable(found.value)
        key, key_base64 = editable(found.key)
        values["copy_of"] = f"{topic.name}-{partition} at offset {offset}"
        values["filled"] = {
            "key": key,
            "value": value,
            "headers": headers_text(found),
            **({"no_key": "1"} if found.key is None else {}),
            **({"key_base64": "1"} if key_base64 else {}),
            **({"value_base64": "1"} if value_base64 else {}),
            **({"tombstone": "1"} if found.value is None else {}),
        }
    return values


async def produce(visit: Visit, form: Form) -> Done:
    """Produce one message."""
    topic = await find_topic(visit)
    refuse_internal(topic)
    partition = whole(form, "partition", "the partition")
    if partition is not None and partition >= len(topic.partitions):
        raise Refused(f"{topic.name} has no partition {partition}")
    value = None if "tombstone" in form else _bytes(form, "value")
    key = None if "no_key" in form or not form.get("key") else _bytes(form, "key")
    async with Producer(visit.cluster, delivery_timeout_s=DELIVERY_TIMEOUT_S) as producer:
        with visit.gateway.tracing.sending(topic.name, _headers(form.get("headers", ""))) as headers:
            delivery = await producer.send_and_wait(
                topic.name, value, key=key, headers=headers, partition=partition
            )
    return Done(f"produced to {delivery.partition} at offset {delivery.offset}")


def _bytes(form: Form, name: str) -> bytes:
    # Browsers send line ends of text areas as CRLF.
    text = form.get(name, "").replace("\r\n", "\n")
    if f"{name}_base64" not in form:
        return text.encode()
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except ValueError:
        raise Refused(f"the {name} is not base64") from None


def _headers(text: str) -> list[tuple[str, bytes | None]]:
    headers: list[tuple[str, bytes | None]] = []
    for line in text.splitlines():
        if line.strip():
            name, equals, value = line.partition("=")
            headers.append((name.strip(), value.encode() if equals else None))
    return headers
