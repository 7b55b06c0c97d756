"""Transactions: those that are open, with their producers and states, and aborting one that hangs."""

import time
from typing import Any

from runnel.client.transactions import ONGOING, OPEN, Transactions
from runnel.gateway.console.dialogs import Done, Form, confirmed
from runnel.gateway.console.pages import Content, Refused, Visit
from runnel.gateway.console.paging import Pager

ROWS = 50
OPEN_DESCRIBED_MAX = 50


async def transactions(visit: Visit) -> Content:
    """One page of transactional ids; open ones first, with their age."""
    text, state = visit.query.get("q", "").strip().lower(), visit.query.get("state", "")
    admin = Transactions(visit.cluster)
    listed = await admin.find(timeout_s=3)
    found = [
        each
        for each in listed
        if text in each.transactional_id.lower() and (not state or (state == "open") == (each.state in OPEN))
    ]
    found.sort(key=lambda each: (each.state not in OPEN, each.transactional_id))
    pager = Pager(len(found), ROWS, visit.number("page", 1))
    shown = pager.slice(found)
    views = {}
    for each in [each for each in shown if each.state in OPEN][:OPEN_DESCRIBED_MAX]:
        views[each.transactional_id] = await admin.describe(each.transactional_id)
    values = {
        "rows": [{"listing": each, "view": views.get(each.transactional_id)} for each in shown],
        "pager": pager,
        "open_count": sum(each.state in OPEN for each in listed),
        "total": len(listed),
        "open_states": OPEN,
        "text": text,
        "state": state,
        "now_ms": time.time_ns() // 1_000_000,
        "q": visit.query,
    }
    return Content("transactions.html", values)


async def show_abort(visit: Visit, form: Form) -> dict[str, Any]:
    """The transaction that would be aborted."""
    name = visit.query.get("id") or form.get("id", "")
    view = await Transactions(visit.cluster).describe(name)
    return {"name": name, "view": view}


async def abort(visit: Visit, form: Form) -> Done:
    """Abort an open transaction, and fence its producer."""
    name = visit.query.get("id") or form.get("id", "")
    admin = Transactions(visit.cluster)
    view = await admin.describe(name)
    if view.state != ONGOING:
        reason = "is already completing" if view.state in OPEN else "has no open transaction"
        raise Refused(f"{name} {reason} (state {view.state})")
    confirmed(form, name)
    await admin.init_producer_id(name, timeout_ms=view.timeout_ms)
    return Done(f"aborted the transaction of {name}")
