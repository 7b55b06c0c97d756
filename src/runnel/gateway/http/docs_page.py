"""The docs page: the OpenAPI document, rendered by the server. No script, nothing from elsewhere."""

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.responses import HTMLResponse, Response

from runnel.gateway.http.openapi import document

if TYPE_CHECKING:
    from starlette.requests import Request

CACHED = {"cache-control": "no-cache"}
STYLE_PATH = "/docs/style.css"


async def docs_page(request: "Request") -> Response:
    """The page."""
    return HTMLResponse(rendered(), headers=CACHED)


async def docs_style(request: "Request") -> Response:
    """Its style."""
    style = (files("runnel.gateway.http") / "templates" / "docs.css").read_bytes()
    return Response(style, media_type="text/css", headers=CACHED)


@cache
def rendered() -> str:
    """The page, which depends on nothing but the document."""
    environment = Environment(
        loader=PackageLoader("runnel.gateway.http"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["type"] = type_text
    environment.filters["code"] = lambda text: re.split(r"`([^`]*)`", text)
    return environment.get_template("docs.html").render(
        document=document(), style=STYLE_PATH, methods=("get", "post", "put", "delete")
    )


def type_text(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return repr(schema["const"])
    if "enum" in schema:
        return " | ".join(repr(each) for each in schema["enum"])
    for kind in ("anyOf", "oneOf"):
        if schema.get(kind) and "type" not in schema:
            return " | ".join(type_text(each) for each in schema[kind])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"array of {type_text(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {type_text(schema['additionalProperties'])}"
    return " | ".join(kind) if isinstance(kind, list) else str(kind)
