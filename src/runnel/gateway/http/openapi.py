"""OpenAPI 3.1 of the table of operations."""

import re
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from runnel.gateway.http.operations import ERRORS, JSON, Answer, Operation
from runnel.gateway.http.problems import MEDIA_TYPE, ConfluentError, ProblemDetails

if TYPE_CHECKING:
    from starlette.requests import Request

VERSION = "3.1.0"
REFERENCE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")

PATH_PARAMETERS: dict[str, dict[str, Any]] = {
    "topic": {"type": "string", "pattern": "^[a-zA-Z0-9._-]{1,249}$"},
    "cluster": {"type": "string", "minLength": 1},
    "group": {"type": "string", "minLength": 1},
    "setting": {"type": "string", "minLength": 1},
    "partition": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
}

HEADER: dict[str, Any] = {"type": "string", "pattern": r'^([!#-\[\]-~]{1,255}|"[!#-\[\]-~]{1,255}")$'}
"""What `idempotency.key_of_request` accepts."""

EXACTLY_ONE_VALUE: dict[str, Any] = {
    "oneOf": [{"required": ["value"]}, {"required": ["value_base64"]}],
    "not": {"required": ["key", "key_base64"]},
}
REFINEMENTS: dict[str, dict[str, Any]] = {
    # What types do not say.
    "PublishRecord": EXACTLY_ONE_VALUE,
    "Header": {"not": {"required": ["value", "value_base64"]}},
    "AckRequest": {"oneOf": [{"required": ["messageId"]}, {"required": ["messageIds"]}]},
    "EventAttributes": {
        "properties": {
            "id": {"type": "string", "minLength": 1},
            "source": {"type": "string", "minLength": 1},
            "type": {"type": "string", "minLength": 1},
            "specversion": {"const": "1.0"},
        }
    },
}


async def openapi_response(request: "Request") -> Response:
    """The document."""
    return Response(encoded_document(), media_type="application/json", headers={"cache-control": "no-cache"})


@cache
def encoded_document() -> bytes:
    """The document as JSON."""
    return msgspec.json.format(msgspec.json.encode(document()), indent=1)


@cache
def document() -> dict[str, Any]:
    """The document of all operations."""
    # Imported here: handlers of the table lead back to it.
    from runnel.gateway.http.table import OPERATIONS

    kinds: list[Any] = [ProblemDetails, ConfluentError]
    for operation in OPERATIONS:
        kinds += [operation.query, *operation.body.values()]
        for answer in operation.responses.values():
            for kind in answer.content.values():
                kinds += kind if isinstance(kind, tuple) else [kind]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    for name, more in REFINEMENTS.items():
        component = components[name]
        component["properties"] |= more.get("properties", {})
        component |= {key: value for key, value in more.items() if key != "properties"}
    by_kind = _Schemas(list(zip(kinds, schemas, strict=True)), components)
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        path = _PARAMETER.sub(r"{\1}", operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation, by_kind)
    for query in {operation.query.__name__ for operation in OPERATIONS}:
        # Their fields are parameters.
        components.pop(query, None)
    return {
        "openapi": VERSION,
        "info": {
            "title": "Runnel HTTP API",
            "version": "1",
            "description": "Publish, subscribe, acknowledge and administer topics. Errors are problem "
            "details (RFC 9457). No operation has a session: any gateway serves any request.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic", "description": "A user with SCRAM or PLAIN."},
                "bearer": {"type": "http", "scheme": "bearer", "description": "A token of OAUTHBEARER."},
            },
        },
        # Without SASL on the listener, no credentials are needed.
        "security": [{}, {"basic": []}, {"bearer": []}],
    }


class _Schemas:
    """The schema of each type."""

    def __init__(self, pairs: list[tuple[Any, Any]], components: dict[str, Any]) -> None:
        self._pairs = pairs
        self.components = components

    def of(self, kind: Any) -> dict[str, Any]:
        if isinstance(kind, tuple):
            return {"anyOf": [self.of(each) for each in kind]}
        # Types such as unions are equal without being the same, and not all are hashable.
        return next(dict(schema) for known, schema in self._pairs if known == kind)


def _operation(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": PATH_PARAMETERS[name]}
        for name in _PARAMETER.findall(operation.path)
    ]
    parameters += _query(operation, schemas)
    parameters += [
        {"name": name, "in": "header", "required": False, "description": description, "schema": HEADER}
        for name, description in operation.headers.items()
    ]
    described: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {
            **{str(status): _answer(answer, schemas) for status, answer in operation.responses.items()},
            **{str(status): _error(status, operation) for status in operation.all_errors},
        },
    }
    if operation.description:
        described["description"] = operation.description
    if operation.body:
        content = {media: {"schema": schemas.of(kind)} for media, kind in operation.body.items()}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _query(operation: Operation, schemas: _Schemas) -> list[dict[str, Any]]:
    component = schemas.components.get(operation.query.__name__, {})
    found = []
    for name, schema in component.get("properties", {}).items():
        shown = _without_null(dict(schema))
        description = shown.pop("description", "")
        parameter = {"name": name, "in": "query", "required": False, "schema": shown}
        found.append({**parameter, "description": description} if description else parameter)
    return found


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter is absent rather than null."""
    if schema.get("default", 0) is None:
        del schema["default"]
    choices = [each for each in schema.pop("anyOf", []) if each != {"type": "null"}]
    if len(choices) == 1:
        return {**choices[0], **schema}
    return {**schema, "anyOf": choices} if choices else schema


def _answer(answer: Answer, schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {"description": answer.description}
    if answer.content:
        found["content"] = {
            # Streams have many of them.
            media: {"schema": schemas.of(kind) if media.endswith("json") and "nd" not in media else {}}
            for media, kind in answer.content.items()
        }
    return found


def _error(status: int, operation: Operation) -> dict[str, Any]:
    name = "ConfluentError" if operation.is_confluent else "ProblemDetails"
    media = JSON if operation.is_confluent else MEDIA_TYPE
    found: dict[str, Any] = {
        "description": ERRORS[status],
        "content": {media: {"schema": {"$ref": REFERENCE.format(name=name)}}},
    }
    if status in (429, 503):
        found["headers"] = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}}
    if status == 401:
        found["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    return found
