"""The index of ACLs against an evaluator that looks at every ACL, as Kafka's documentation describes it."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.security.acl import (
    ALL_OPERATIONS,
    AccessControlEntry,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
    parse_address,
)
from runnel.security.acl_index import AclIndex

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
IMPLIED_BY = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}

names = st.sampled_from(["a", "ab", "abc", "b", "hardcode", "*"])
hosts = st.sampled_from(
    [
        "*",
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.0/24",
        "10.0.0.0/30",
        "0.0.0.0/0",
        "::1",
        "0:0:0:0:0:0:0:1",
        "::/64",
    ]
)
principals = st.sampled_from(["User:alice", "User:bob", "User:*", "Group:alice"])
operations = st.sampled_from(sorted(Operation)[1:])
acls = st.builds(
    AccessControlEntry,
    st.sampled_from([TOPIC, GROUP]),
    names,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    principals,
    hosts,
    operations,
    st.sampled_from([PermissionType.ALLOW, PermissionType.DENY]),
)
clients = st.sampled_from(["10.0.0.1", "10.0.0.9", "192.0.2.1", "::1", "::ffff:10.0.0.1"])
askers = st.sampled_from(["User:alice", "User:bob", "Group:alice"])


def matches_host(acl: AccessControlEntry, client: str) -> bool:
    address = ip_address(client)
    address = getattr(address, "ipv4_mapped", None) or address
    if acl.host == "*":
        return True
    network = ip_network(acl.host, strict=False)
    return address.version == network.version and address in network


def matches_name(acl: AccessControlEntry, name: str) -> bool:
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")


def naive(
    entries: list[AccessControlEntry],
    asker: str,
    client: str,
    name: str,
    operation: Operation,
    everyone: bool,
) -> bool:
    touching = [acl for acl in entries if acl.resource_type == TOPIC and matches_name(acl, name)]
    if not touching:
        return everyone
    own = [acl for acl in touching if acl.principal in (asker, "User:*") and matches_host(acl, client)]
    if any(
        acl.permission_type == PermissionType.DENY and acl.operation in (operation, Operation.ALL)
        for acl in own
    ):
        return False
    sufficient = {operation, Operation.ALL} | IMPLIED_BY.get(operation, set())
    return any(acl.permission_type == PermissionType.ALLOW and acl.operation in sufficient for acl in own)


def naive_some(
    entries: list[AccessControlEntry], asker: str, client: str, operation: Operation, everyone: bool
) -> bool:
    if naive(entries, asker, client, "hardcode", operation, everyone):
        return True
    own = [
        acl
        for acl in entries
        if acl.resource_type == TOPIC
        and acl.principal in (asker, "User:*")
        and matches_host(acl, client)
        and acl.operation in (operation, Operation.ALL)
    ]
    patterns = {
        (permission, kind): {
            acl.resource_name for acl in own if (acl.permission_type, acl.pattern_type) == (permission, kind)
        }
        for permission in (PermissionType.ALLOW, PermissionType.DENY)
        for kind in (PatternType.LITERAL, PatternType.PREFIXED)
    }
    denied = patterns[PermissionType.DENY, PatternType.LITERAL]
    denied_prefixes = patterns[PermissionType.DENY, PatternType.PREFIXED]
    if "*" in denied:
        return False
    allowed = patterns[PermissionType.ALLOW, PatternType.LITERAL]
    if "*" in allowed:
        return True

    def is_dominated(name: str) -> bool:
        return any(name.startswith(prefix) for prefix in denied_prefixes)

    return any(not is_dominated(name) for name in allowed - denied) or any(
        not is_dominated(name) for name in patterns[PermissionType.ALLOW, PatternType.PREFIXED]
    )


def indexed(entries: list[AccessControlEntry]) -> AclIndex:
    index = AclIndex()
    for number, acl in enumerate(entries):
        index.add(number.to_bytes(16), acl)
    return index


@given(st.lists(acls, max_size=12), askers, clients, names, st.booleans())
def test_verdicts_are_those_of_a_naive_evaluator(entries, asker, client, name, everyone):
    index = indexed(entries)
    allowed = index.operations(asker, parse_address(client), TOPIC, name, allow_unlisted=everyone)
    for operation in sorted(Operation)[2:]:
        expected = naive(entries, asker, client, name, operation, everyone)
        assert bool(allowed >> operation & 1) == expected, operation.name


@given(st.lists(acls, max_size=8), askers, clients, st.booleans())
def test_permission_on_some_topic_is_that_of_a_naive_evaluator(entries, asker, client, everyone):
    index = indexed(entries)
    for _ in range(2):
        found = index.allows_some(
            asker, parse_address(client), Operation.WRITE, TOPIC, allow_unlisted=everyone
        )
        assert found == naive_some(entries, asker, client, Operation.WRITE, everyone)


@given(st.lists(acls, max_size=12), st.data())
def test_removed_acls_leave_nothing(entries, data):
    index = indexed(entries)
    removed = data.draw(
        st.lists(st.sampled_from(range(len(entries))), unique=True) if entries else st.just([])
    )
    for number in removed:
        index.remove(number.to_bytes(16))
    rest = [acl for number, acl in enumerate(entries) if number not in removed]
    assert len(index) == len(rest)
    for name in ("a", "abc"):
        for client in ("10.0.0.1", "::1"):
            allowed = index.operations("User:alice", parse_address(client), TOPIC, name)
            expected = [
                operation
                for operation in sorted(Operation)[2:]
                if naive(rest, "User:alice", client, name, operation, False)
            ]
            assert [each for each in sorted(Operation)[2:] if allowed >> each & 1] == expected
    for number in set(range(len(entries))) - set(removed):
        index.remove(number.to_bytes(16))
    assert not index._names and not any(index._patterns.values())


def entry(name: str, **changes: object) -> AccessControlEntry:
    fields = {
        "resource_type": TOPIC,
        "resource_name": name,
        "pattern_type": PatternType.LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": Operation.READ,
        "permission_type": PermissionType.ALLOW,
    }
    return AccessControlEntry(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "client", "expected"),
    [
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("::ffff:10.0.0.0/104", "10.0.0.1", True),
        ("::ffff:10.0.0.0/104", "::ffff:10.0.0.1", True),
        ("::ffff:10.0.0.0/104", "11.0.0.1", False),
        ("::ffff:0.0.0.0/96", "192.0.2.1", True),
        ("::ffff:0.0.0.0/95", "192.0.2.1", False),
        ("10.0.0.0/8", "10.255.0.1", True),
        ("10.1.2.3/8", "10.255.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("2001:db8::/32", "2001:db8:1::1", True),
        ("0.0.0.0/0", "2001:db8::1", False),
        ("10.0.0.0/33", "10.0.0.1", False),
        ("localhost", "127.0.0.1", False),
        ("host-1", "host-1", True),
    ],
)
def test_hosts_are_compared_as_addresses(host, client, expected):
    index = indexed([entry("t", host=host)])
    allowed = index.operations("User:alice", parse_address(client), TOPIC, "t")
    assert bool(allowed >> Operation.READ & 1) == expected


def test_an_acl_can_be_replaced():
    index = indexed([entry("a")])
    index.add(bytes(16), entry("b"))
    assert not index.operations("User:alice", "h", TOPIC, "a")
    assert index.operations("User:alice", "h", TOPIC, "b")
    assert len(index) == 1


def test_a_check_looks_at_few_of_many_acls():
    index = AclIndex()
    steps = list(
        index.build(
            {
                number.to_bytes(16): entry(f"topic-{number}", host=f"10.0.{number >> 8 & 255}.{number & 255}")
                for number in range(5_000)
            }
        )
    )
    assert len(steps) == 5 and len(index) == 5_000
    names = index._names["User:alice", TOPIC]
    assert len(list(names.matching("topic-77"))) == 1
    assert index.operations("User:bob", "h", TOPIC, "topic-77", allow_unlisted=True) == 0
    assert index.operations("User:bob", "h", TOPIC, "other", allow_unlisted=True) == ALL_OPERATIONS
