"""Roles: names for sets of ACLs on all topics, groups and transactional ids that a pattern matches.

A role is stored as its ACLs and as nothing else, so that Kafka's tools see, and authorizers evaluate, what
was granted. No two roles have an ACL in common: to revoke one does not affect another.
"""

from collections.abc import Iterable
from typing import NamedTuple

from runnel.security.acl import (
    WILDCARD,
    AccessControlEntry,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
)

ROLES: dict[str, tuple[tuple[ResourceType, Operation], ...]] = {
    "reader": ((ResourceType.TOPIC, Operation.READ), (ResourceType.GROUP, Operation.READ)),
    "writer": ((ResourceType.TOPIC, Operation.WRITE), (ResourceType.TRANSACTIONAL_ID, Operation.WRITE)),
    "admin": (
        (ResourceType.TOPIC, Operation.ALL),
        (ResourceType.GROUP, Operation.ALL),
        (ResourceType.TRANSACTIONAL_ID, Operation.ALL),
    ),
}


class Grant(NamedTuple):
    """A role that a principal has on a pattern."""

    role: str
    pattern: str
    principal: str
    host: str


def parse_pattern(text: str) -> tuple[str, PatternType]:
    """`orders` is one name, `orders-*` a prefix, `*` every name. ValueError if it is empty."""
    if not text:
        raise ValueError("a pattern must not be empty")
    if text != WILDCARD and text.endswith("*"):
        return text[:-1], PatternType.PREFIXED
    return text, PatternType.LITERAL


def pattern_text(name: str, pattern_type: int) -> str:
    """The pattern of an ACL as `parse_pattern` reads it."""
    return f"{name}*" if pattern_type == PatternType.PREFIXED else name


def role_acls(grant: Grant) -> list[AccessControlEntry]:
    """The ACLs of a role."""
    name, pattern_type = parse_pattern(grant.pattern)
    return [
        AccessControlEntry(
            resource_type, name, pattern_type, grant.principal, grant.host, operation, PermissionType.ALLOW
        )
        for resource_type, operation in ROLES[grant.role]
    ]


def granted_roles(acls: Iterable[AccessControlEntry]) -> list[Grant]:
    """The roles whose ACLs all exist, in order of principal, pattern and role."""
    known = set(acls)
    places = {
        (pattern_text(acl.resource_name, acl.pattern_type), acl.principal, acl.host)
        for acl in known
        if acl.resource_type == ResourceType.TOPIC
    }
    grants = [Grant(role, *place) for place in places for role in ROLES]
    found = [grant for grant in grants if known.issuperset(role_acls(grant))]
    return sorted(found, key=lambda grant: (grant.principal, grant.pattern, grant.host, grant.role))
