"""Schemas of the registry: subjects, their versions, and what changed between two of them."""

import asyncio
import json
from difflib import unified_diff
from typing import Any

from runnel.gateway.console.pages import Content, Refused, Visit
from runnel.gateway.console.paging import Pager
from runnel.gateway.json_text import indented
from runnel.registry import lookup
from runnel.registry.checks import Verdicts
from runnel.registry.errors import RegistryError
from runnel.registry.formats import PROTOBUF
from runnel.registry.names import context_of, qualified
from runnel.registry.settings import LEVEL, config_of, mode_of
from runnel.registry.state import RegistryState, Version

ROWS = 50
DIFF_LINES_MAX = 2000
"""Lines of each side: comparing takes up to the product of their numbers."""


async def schemas(visit: Visit) -> Content:
    """One page of subjects with their latest versions."""
    text = visit.query.get("q", "").strip().lower()
    page = visit.number("page", 1)

    def find(state: RegistryState, verdicts: Verdicts) -> dict[str, Any]:
        names = lookup.subjects(state)
        found = [name for name in names if text in name.lower()]
        pager = Pager(len(found), ROWS, page)
        rows = [_row(state, name) for name in pager.slice(found)]
        return {
            "rows": rows,
            "pager": pager,
            "total": len(names),
            "level": config_of(state.configs, None)[LEVEL],
        }

    values = await visit.gateway.registry.store_of(visit.session).read(find)
    return Content("schemas.html", {**values, "text": text, "q": visit.query})


def _row(state: RegistryState, subject: str) -> dict[str, Any]:
    latest = state.latest(subject)
    return {
        "subject": subject,
        "latest": latest,
        "count": len(state.live_versions(subject)),
        "level": config_of(state.configs, subject)[LEVEL],
        "mode": mode_of(state.modes, subject),
    }


async def schema(visit: Visit) -> Content:
    """One version of a subject, and its differences from an earlier one."""
    subject, number = visit.query.get("id", ""), visit.query.get("version", "latest")

    def find(state: RegistryState, verdicts: Verdicts) -> dict[str, Any]:
        shown = lookup.version(state, subject, number)
        live = state.live_versions(shown.subject)
        where = qualified(context_of(shown.subject), "")
        earlier = [one for one in live if one.version < shown.version]
        wanted = visit.number("against", earlier[-1].version if earlier else 0)
        against = next((one for one in live if one.version == wanted), None)
        return {
            "row": _row(state, shown.subject),
            "version": shown,
            "versions": [one.version for one in reversed(live)],
            "against": against,
            "referrers": lookup.referenced_by(state, shown.subject, str(shown.version)),
            "uses": [one for one in lookup.uses_of_id(state, shown.id, where) if one.place != shown.place],
        }

    try:
        values = await visit.gateway.registry.store_of(visit.session).read(find)
    except RegistryError as error:
        raise Refused(error.message, error.status) from None
    text, diff = await asyncio.to_thread(_text_and_diff, values["version"], values["against"])
    return Content("schema.html", {**values, "text": text, "diff": diff, "q": visit.query})


def _text_and_diff(version: Version, against: Version | None) -> tuple[str, list[tuple[str, str]]]:
    text = pretty(version)
    return text, [] if against is None else differences(pretty(against), text)


def pretty(version: Version) -> str:
    """The text of a version, indented if it is JSON."""
    if version.content.type == PROTOBUF:
        return version.content.text
    try:
        return indented(json.loads(version.content.text))
    except (ValueError, RecursionError):
        return version.content.text


def differences(old: str, new: str) -> list[tuple[str, str]]:
    """Lines with what happened to each: `+`, `-`, `@` for a place, or a blank."""
    sides = (old.splitlines(), new.splitlines())
    if max(map(len, sides)) > DIFF_LINES_MAX:
        return [("@", f"the schemas have more than {DIFF_LINES_MAX} lines: use runnel schema diff")]
    lines = list(unified_diff(*sides, lineterm="", n=3))[2:]
    return [(line[:1], line[1:] if line[:1] != "@" else line) for line in lines]
