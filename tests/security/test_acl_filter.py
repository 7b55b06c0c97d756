"""Filters of ACLs select what Kafka's select."""

import pytest

from runnel.security.acl import AccessControlEntry, Operation, PatternType, PermissionType, ResourceType
from runnel.security.acl_filter import AclFilter

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def acl(name: str, kind: PatternType = LITERAL) -> AccessControlEntry:
    return AccessControlEntry(
        ResourceType.TOPIC, name, kind, "User:a", "*", Operation.READ, PermissionType.ALLOW
    )


ACLS = [acl("orders"), acl("*"), acl("ord", PREFIXED), acl("orders", PREFIXED), acl("other")]


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        (None, PatternType.ANY, ACLS),
        (None, PatternType.MATCH, ACLS),
        (None, PREFIXED, ACLS[2:4]),
        ("orders", PatternType.ANY, [ACLS[0], ACLS[3]]),
        ("orders", LITERAL, [ACLS[0]]),
        ("orders", PREFIXED, [ACLS[3]]),
        ("orders", PatternType.MATCH, ACLS[:4]),
        ("ordinary", PatternType.MATCH, [ACLS[1], ACLS[2]]),
        ("*", LITERAL, [ACLS[1]]),
    ],
)
def test_names_are_matched_by_the_pattern_type(name, kind, expected):
    selected = AclFilter(resource_name=name, pattern_type=kind)
    assert [each for each in ACLS if selected.matches(each)] == expected


@pytest.mark.parametrize(
    "changed",
    [
        {"resource_type": ResourceType.GROUP},
        {"principal": "User:b"},
        {"host": "10.0.0.1"},
        {"operation": Operation.WRITE},
        {"permission_type": PermissionType.DENY},
    ],
)
def test_every_other_condition_must_be_met(changed):
    assert AclFilter().matches(ACLS[0])
    assert not AclFilter(**changed).matches(ACLS[0])


def test_a_filter_without_alternatives_names_one_acl():
    exact = AclFilter(2, "orders", LITERAL, "User:a", "*", Operation.READ, PermissionType.ALLOW)
    assert exact.exact() == ACLS[0]
    assert AclFilter(2, "orders", PatternType.MATCH, "User:a", "*", 3, 3).exact() is None
    assert AclFilter(2, "orders", LITERAL, "User:a", "*", Operation.ANY, 3).exact() is None
    assert AclFilter(2, None, LITERAL, "User:a", "*", 3, 3).exact() is None
