"""How permissions are checked; `access.py` is the table of what each API needs.

A row of it is a sequence of rules, checked in order.

    whole    one permission for all of the request; without it the handler is not called
    items    one permission per element of an array; elements that lack it are answered with an error beside
             what the handler answers for the others; if none is left, the handler is not called
    listed   one permission per element of the response; elements that lack it are left out
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from runnel.broker.apis.denials import Denied, denied_item, empty_response
from runnel.broker.runtime.check import Check
from runnel.broker.runtime.context import Context
from runnel.model.errors import ErrorCode
from runnel.ports.gates import CLUSTER_NAME, Operation, Permission, ResourceType
from runnel.wire import Request, Response

Amend = Callable[[Any], None]
"""Complete or filter a response with what authorization decided."""
Outcome = Response | Amend | None
"""A response instead of the handler's, an amendment to the handler's response, or no objection."""
Rule = Callable[[Any, Context, Check], Outcome]

DENIED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def whole(permission: Callable[[Any], Permission | None], denied: Denied | None = None) -> Rule:
    """A permission for all of a request, unless it is None for this one.

    Denied, the response has the error at its top level unless `denied` builds another.
    """

    def rule(request: Request, ctx: Context, check: Check) -> Outcome:
        needed = permission(request)
        if needed is None or check(needed):
            return None
        error = DENIED[needed.resource_type]
        if denied is not None:
            return denied(request, error)
        return empty_response(request, error_code=error.code)

    return rule


def items(
    array: str,
    permission: Callable[[Any, Context], Permission | None],
    into: str,
    alternative: Permission | None = None,
) -> Rule:
    """A permission per element of the request's `array`; denied ones are answered in the response's `into`.

    `alternative` permits all elements at once.
    """

    def rule(request: Request, ctx: Context, check: Check) -> Outcome:
        wanted = getattr(request, array)
        if not wanted or (alternative is not None and check.alternative(alternative)):
            return None
        kept, refused = split(request, wanted, into, lambda item: permission(item, ctx), check)
        if not refused:
            return None
        setattr(request, array, kept)
        if not kept:
            return empty_response(request, **{into: refused})
        return partial(_add, into, refused)

    return rule


def listed(
    array: str, permission: Callable[[Any], Permission], alternative: Permission | None = None
) -> Rule:
    """A permission per element of the response's `array`: those that lack it are left out."""

    def rule(request: Request, ctx: Context, check: Check) -> Outcome:
        if alternative is not None and check.alternative(alternative):
            return None
        return partial(hide, array, permission, check)

    return rule


def split(
    request: Request,
    wanted: list[Any],
    into: str,
    permission: Callable[[Any], Permission | None],
    check: Check,
) -> tuple[list[Any], list[Any]]:
    """(the elements that are permitted, the answers to the others)."""
    kept: list[Any] = []
    refused: list[Any] = []
    for item in wanted:
        needed = permission(item)
        if needed is None or check(needed):
            kept.append(item)
        else:
            refused.append(denied_item(request, into, item, DENIED[needed.resource_type]))
    return kept, refused


def hide(array: str, permission: Callable[[Any], Permission], check: Check, response: Any) -> None:
    """Leave out what the client may not see."""
    # A response may share its list with others: it is replaced, not changed.
    visible = [item for item in getattr(response, array) if check.shows(permission(item))]
    setattr(response, array, visible)


def _add(into: str, refused: list[Any], response: Any) -> None:
    setattr(response, into, [*getattr(response, into), *refused])


def on_cluster(operation: Operation) -> Permission:
    """An operation on the cluster."""
    return Permission(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def on_topic(operation: Operation, name: str) -> Permission:
    """An operation on a topic."""
    return Permission(operation, ResourceType.TOPIC, name)


def on_group(operation: Operation, name: str) -> Permission:
    """An operation on a group."""
    return Permission(operation, ResourceType.GROUP, name)


def on_transactional_id(operation: Operation, name: str) -> Permission:
    """An operation on a transactional id."""
    return Permission(operation, ResourceType.TRANSACTIONAL_ID, name)
