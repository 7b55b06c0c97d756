"""Scripts and styles: read once, sent compressed, and kept by browsers as long as they do not change."""

import gzip
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from starlette.responses import Response

from runnel.visual.style import stylesheet

if TYPE_CHECKING:
    from starlette.requests import Request

TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
THEME = "theme.css"
"""The style that the console shares with reports, with the colours of both."""
NAMES = (
    THEME,
    "console.css",
    "console.js",
    "charts.js",
    "messages.js",
    "theme.js",
    "icon.svg",
    "vendor/htmx.min.js",
    "vendor/uPlot.iife.min.js",
    "vendor/uPlot.min.css",
)
_DAY_S = 86400


@cache
def _loaded() -> dict[str, tuple[bytes, bytes, str]]:
    """(content, compressed content, hash) of each file."""
    folder = files("runnel.gateway.console") / "static"
    found = {}
    for name in NAMES:
        data = stylesheet().encode() if name == THEME else folder.joinpath(*name.split("/")).read_bytes()
        found[name] = (data, gzip.compress(data, mtime=0), hashlib.sha256(data).hexdigest()[:16])
    return found


def static_url(name: str) -> str:
    """The address of a file, which changes with its content."""
    return f"/console/static/{name}?v={_loaded()[name][2]}"


async def static_file(request: "Request") -> Response:
    """One file; names are looked up, never opened."""
    found = _loaded().get(request.path_params["name"])
    if found is None:
        return Response("not found\n", 404, media_type="text/plain")
    data, compressed, tag = found
    suffix = request.path_params["name"].rpartition(".")[2]
    headers = {
        "content-type": TYPES[f".{suffix}"],
        "cache-control": f"public, max-age={365 * _DAY_S}, immutable",
        "etag": f'"{tag}"',
        "vary": "accept-encoding",
    }
    if request.headers.get("if-none-match") == f'"{tag}"':
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(compressed, headers={**headers, "content-encoding": "gzip"})
    return Response(data, headers=headers)
