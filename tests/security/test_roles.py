"""Roles and the ACLs that they are."""

from itertools import combinations

import pytest

from runnel.security.acl import AccessControlEntry, PatternType
from runnel.security.roles import ROLES, Grant, granted_roles, parse_pattern, pattern_text, role_acls


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", ("orders", PatternType.LITERAL)),
        ("orders-*", ("orders-", PatternType.PREFIXED)),
        ("*", ("*", PatternType.LITERAL)),
    ],
)
def test_patterns(text, expected):
    assert parse_pattern(text) == expected
    assert pattern_text(*expected) == text


def test_roles_have_no_acl_in_common():
    for one, other in combinations(ROLES, 2):
        assert not set(ROLES[one]) & set(ROLES[other])


def test_granted_roles_are_found_in_their_acls():
    grants = [
        Grant("reader", "a*", "User:a", "*"),
        Grant("writer", "a*", "User:a", "*"),
        Grant("admin", "*", "User:b", "10.0.0.0/8"),
    ]
    acls = [acl for grant in grants for acl in role_acls(grant)]
    other = AccessControlEntry(2, "c", PatternType.LITERAL, "User:c", "*", 3, 3)
    assert granted_roles([*acls, other]) == sorted(grants, key=lambda grant: (grant.principal, grant.role))
    assert granted_roles(acls[1:]) == [grants[1], grants[2]], "of the first role an ACL is missing"
