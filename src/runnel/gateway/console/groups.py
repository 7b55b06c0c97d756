"""Consumer groups: the list with lag, one group, reset of offsets and deletion."""

import asyncio
from typing import Any

from starlette.responses import HTMLResponse, Response

from runnel.client.errors import BrokerError, ClientError
from runnel.client.groups import GroupListing, Groups
from runnel.client.offset_reset import Move, ResetTarget, To, plan_reset
from runnel.gateway.console.dialogs import Again, Done, Form, confirmed
from runnel.gateway.console.moments import as_of_ms, entered_ms
from runnel.gateway.console.pages import NO_STORE, Content, Refused, Visit
from runnel.gateway.console.paging import Pager
from runnel.gateway.lag import GroupLag, LagSummary, ReportedLag
from runnel.gateway.lag_history import LagHistory
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.visual.charts import LineChart, Series
from runnel.visual.svg import twice
from runnel.visual.units import Unit

ROWS = 50
CHART_WIDTH = 520.0
SORTED_BY_LAG_MAX = 200
"""Lists up to this length can be sorted by lag if brokers do not report it."""

VERDICT_LEVELS = {
    "unknown": "plain",
    "ok": "good",
    "lagging": "warn",
    "rewound": "warn",
    "stalled": "bad",
    "stopped": "bad",
}


async def groups(visit: Visit) -> Content:
    """One page of the list, with the lag of what it shows."""
    listings, summaries = await asyncio.gather(visit.data.groups.get(), visit.data.lag_summaries.get())
    at_ms = as_of_ms(visit.query)
    if at_ms is not None:
        past = await _past(visit)
        summaries = {
            name: LagSummary(sample.lag, sample.seconds)
            for name, sample in (past.at(at_ms) if past is not None else {}).items()
            if name in summaries and not summaries[name].is_partial
        }
    text, state = visit.query.get("q", "").strip().lower(), visit.query.get("state", "")
    found = [
        group
        for group in listings
        if text in group.group_id.lower() and (not state or group.state.lower() == state.lower())
    ]
    sort = visit.query.get("sort", "name")
    can_sort = bool(summaries) or (at_ms is None and len(found) <= SORTED_BY_LAG_MAX)
    lags: dict[str, GroupLag | None] = {}
    if sort == "lag" and can_sort:
        if not summaries:
            lags = await _lags(visit, found)
        found.sort(key=lambda group: (-_total(group, lags, summaries), group.group_id))
    pager = Pager(len(found), ROWS, visit.number("page", 1))
    shown = pager.slice(found)
    if at_ms is None:
        missing = [group for group in shown if group.group_id not in lags and group.group_id not in summaries]
        lags.update(await _lags(visit, missing))
    rows = [
        {
            "group": group,
            "lag": _total(group, lags, summaries) if _is_known(group, lags, summaries) else None,
            "summary": summaries.get(group.group_id),
        }
        for group in shown
    ]
    values = {"rows": rows, "pager": pager, "sort": sort, "text": text, "state": state}
    states = sorted({group.state for group in listings})
    more = {"states": states, "has_seconds": bool(summaries), "can_sort": can_sort, "q": visit.query}
    return Content("groups.html", {**values, **more, "levels": VERDICT_LEVELS, "total": len(listings)})


async def _past(visit: Visit, group_id: str | None = None) -> LagHistory | None:
    """The lag of the last day, for users who may see all of it now."""
    if not await visit.data.admin_addresses.get():
        return None
    if group_id is not None:
        summary = (await visit.data.lag_summaries.get()).get(group_id)
        if summary is None or summary.is_partial:
            return None
    return visit.gateway.lag_history


def _is_known(
    group: GroupListing, lags: dict[str, GroupLag | None], summaries: dict[str, LagSummary]
) -> bool:
    return group.group_id in summaries or lags.get(group.group_id) is not None


def _total(group: GroupListing, lags: dict[str, GroupLag | None], summaries: dict[str, LagSummary]) -> int:
    if group.group_id in summaries:
        return summaries[group.group_id].lag
    lag = lags.get(group.group_id)
    return 0 if lag is None else lag.total


async def _lags(visit: Visit, listed: list[GroupListing]) -> dict[str, GroupLag | None]:
    async def one(name: str) -> GroupLag | None:
        try:
            return await visit.data.lags.get(name)
        except ClientError:
            return None

    found = await asyncio.gather(*(one(group.group_id) for group in listed))
    return {group.group_id: lag for group, lag in zip(listed, found, strict=True)}


def group_id(visit: Visit, form: Form | None = None) -> str:
    """The group of an address; names of groups may contain anything, so they are not in the path."""
    name = visit.query.get("id") or (form or {}).get("id", "")
    if not name:
        raise Refused("no group was given", 404)
    return name


async def group(visit: Visit) -> Content:
    """One group: members, partitions and lag."""
    name = group_id(visit)
    at_ms = as_of_ms(visit.query)
    if at_ms is not None:
        return await _group_as_of(visit, name, at_ms)
    view, lag = await asyncio.gather(Groups(visit.cluster).describe(name), visit.data.lags.get(name))
    summary = await visit.data.lag_of(name)
    reported = summary.by_partition if summary is not None else {}
    owners = {partition: member for member in view.members for partition in member.partitions}
    known = {each.partition: each for each in lag.partitions}
    rows: list[dict[str, Any]] = [
        {
            "partition": partition,
            "committed": None if (each := known.get(partition)) is None else each.committed,
            "end": None if each is None else each.end,
            "lag": None if each is None else each.lag,
            "seconds": reported.get(partition, ReportedLag()).seconds,
            "reason": reported.get(partition, ReportedLag()).reason,
            "member": owners.get(partition),
        }
        for partition in sorted(set(owners) | set(known))
    ]
    values = {"view": view, "rows": rows, "lag": lag.total, "summary": summary, "levels": VERDICT_LEVELS}
    return Content("group.html", {**values, "largest": max([row["lag"] or 0 for row in rows], default=0)})


async def _group_as_of(visit: Visit, name: str, at_ms: int) -> Content:
    # The cluster decides whether the user may see it.
    await Groups(visit.cluster).describe(name)
    past = await _past(visit, name)
    sample = None if past is None else past.at(at_ms).get(name)
    since_ms = None if past is None else past.since_ms
    return Content("group_as_of.html", {"name": name, "sample": sample, "since_ms": since_ms})


async def history(visit: Visit) -> Response:
    """The lag of a group during the last day, as a chart."""
    name = group_id(visit)
    await Groups(visit.cluster).describe(name)
    past = await _past(visit, name)
    samples = [] if past is None else past.of(name)
    charts = []
    if len(samples) > 1:
        seconds = [(each.at_ms, 1000 * each.seconds) for each in samples if each.seconds is not None]
        lags = [(each.at_ms, float(each.lag)) for each in samples]
        if len(seconds) > 1:
            charts.append(
                ("Time behind", LineChart("Time behind", [Series(name, seconds)], Unit.DURATION_MS, True))
            )
        charts.append(("Lag in records", LineChart("Lag in records", [Series(name, lags)], Unit.COUNT, True)))
    drawn = [(title, twice(chart.draw, CHART_WIDTH)) for title, chart in charts]
    return HTMLResponse(visit.render("group_history.html", charts=drawn), headers=NO_STORE)


# Dialogs.


async def show_reset(visit: Visit, form: Form) -> dict[str, Any]:
    """Where a group can be reset to."""
    name = group_id(visit, form)
    lag = await visit.data.lags.get(name)
    return {"name": name, "topics": lag.topics, "moves": None}


async def reset(visit: Visit, form: Form) -> Done | Again:
    """Show the new offsets; commit them in a second step."""
    name = group_id(visit, form)
    moves = await _moves(visit, form, name)
    if "apply" not in form:
        return Again({"moves": moves})
    # The offsets that were shown are committed: the ends may have moved since.
    shown = {f"{move.partition}": move for move in moves}
    after = {}
    for text, value in form.items():
        if text.startswith("to:") and text[3:] in shown and value.isdecimal():
            after[shown[text[3:]].partition] = int(value)
    if not after:
        return Again({"moves": moves})
    await Groups(visit.cluster).commit(name, after)
    return Done(f"reset {len(after)} offsets of group {name}")


async def _moves(visit: Visit, form: Form, name: str) -> list[Move]:
    committed = {
        partition: commit.offset
        for partition, commit in (await Groups(visit.cluster).committed(name)).items()
    }
    topic = form.get("topic", "")
    if topic:
        view = await visit.cluster.topic(topic)
        partitions = [TopicPartition(topic, each.partition) for each in view.partitions]
    else:
        partitions = sorted(committed)
    if not partitions:
        raise Refused("the group has no committed offsets: enter a topic")
    return await plan_reset(visit.cluster, partitions, committed, _target(form))


def _target(form: Form) -> ResetTarget:
    try:
        to = To(form.get("to", ""))
    except ValueError:
        raise Refused("choose where to reset to") from None
    if to is To.OFFSET:
        text = form.get("offset", "").strip()
        if not text.isdecimal() or len(text) > 19:
            raise Refused("enter an offset: a whole number")
        return ResetTarget(to, int(text))
    if to is To.SHIFT:
        try:
            return ResetTarget(to, int(form.get("shift", "").strip()))
        except ValueError:
            raise Refused("enter a shift: a whole number, negative for backwards") from None
    if to is To.TIME:
        return ResetTarget(to, entered_ms(form.get("time", "")))
    return ResetTarget(to)


async def show_delete(visit: Visit, form: Form) -> dict[str, Any]:
    """What is lost with a group."""
    name = group_id(visit, form)
    lag = await visit.data.lags.get(name)
    return {"name": name, "offsets": len(lag.partitions), "topics": lag.topics}


async def delete(visit: Visit, form: Form) -> Done:
    """Delete a group."""
    name = group_id(visit, form)
    confirmed(form, name)
    try:
        await Groups(visit.cluster).delete(name)
    except BrokerError as error:
        if error.error is ErrorCode.NON_EMPTY_GROUP:
            raise Refused("the group still has members; stop its consumers first") from None
        raise
    return Done(f"deleted group {name}", "/console/groups")
