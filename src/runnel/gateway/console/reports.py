"""Pipelines: the reports that their jobs have written, where the gateway can read them."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from starlette.responses import HTMLResponse, Response

from runnel.gateway.console.pages import NO_STORE, Content, Refused, Visit
from runnel.pipelines.report.writing import PAGE

REPORTS_MAX = 200
REPORT_BYTES_MAX = 32 * 1024 * 1024
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'none'"
"""A report has its styles in itself, and nothing else."""


@dataclass(frozen=True, slots=True)
class Report:
    """A report in a folder of its own."""

    name: str
    written_ms: int
    path: Path


def find_reports(folder: Path) -> list[Report]:
    """The reports of a folder, the newest first."""
    try:
        places = [place for place in folder.iterdir() if place.is_dir() and not place.is_symlink()]
    except OSError:
        return []
    found = []
    for place in places:
        page = place / PAGE
        if page.is_file() and not page.is_symlink():
            found.append(Report(place.name, page.stat().st_mtime_ns // 1_000_000, page))
    return sorted(found, key=lambda report: (-report.written_ms, report.name))[:REPORTS_MAX]


async def _reports(visit: Visit) -> list[Report]:
    if visit.gateway.sessions.needs_login:
        # A report may show what the user is not permitted to see in the cluster.
        return []
    return await asyncio.to_thread(find_reports, visit.gateway.options.reports)


async def pipelines(visit: Visit) -> Content:
    """All reports."""
    values = {"rows": await _reports(visit), "folder": str(visit.gateway.options.reports)}
    return Content("pipelines.html", {**values, "is_hidden": visit.gateway.sessions.needs_login})


async def report(visit: Visit) -> Response:
    """One report; it is looked up by its name, never opened by it."""
    name = visit.path("report")
    found = next((each for each in await _reports(visit) if each.name == name), None)
    if found is None:
        raise Refused(f"there is no report {name}", 404)
    if found.path.stat().st_size > REPORT_BYTES_MAX:
        raise Refused("the report is too large to be shown here", 413)
    page = await asyncio.to_thread(found.path.read_bytes)
    return HTMLResponse(page, headers={**NO_STORE, "content-security-policy": POLICY})
