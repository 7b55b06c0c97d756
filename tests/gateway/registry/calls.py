"""Requests to the registry of a gateway."""

import json
from typing import Any
from urllib.parse import quote

from tests.gateway.gateways import Visitor

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


def call(visitor: Visitor, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """The status and the JSON of a response."""
    sent: dict[str, str | None] = {"Accept": MEDIA_TYPE, **headers}
    data = None
    if body is not None:
        data = body if isinstance(body, str) else json.dumps(body)
        sent.setdefault("Content-Type", MEDIA_TYPE)
    reply = visitor.request(method, path, headers=sent, body=data)
    return reply.status, json.loads(reply.text) if reply.text else None


def register(visitor: Visitor, subject: str, schema: Any, **more: Any) -> Any:
    body = {"schema": schema if isinstance(schema, str) else json.dumps(schema), **more}
    status, found = call(visitor, "POST", f"/subjects/{quote(subject, safe='')}/versions", body)
    assert status == 200, found
    return found
