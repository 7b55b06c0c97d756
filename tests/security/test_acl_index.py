"""The index of ACLs against an evaluator that looks at every ACL, as Kafka's documentation describes it."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runnel.security import acl_index
from runnel.security.acl import (
    ALL_OPERATIONS,
    AccessControlEntry,
    Address,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
    parse_address,
)
from runnel.security.acl_index import AclIndex, _Hosts
from tests.security import naive_acls
from tests.security.naive_acls import (
    OPERATIONS,
    acls,
    askers,
    clients,
    colliding_acls,
    contested_acls,
    decided,
    names,
    resource_types,
)

TOPIC = ResourceType.TOPIC


ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY


Change = tuple[bytes, AccessControlEntry | None]


def pattern(
    name: str, permission: PermissionType, kind: PatternType = PatternType.LITERAL, **changes: object
) -> AccessControlEntry:
    acl = AccessControlEntry(TOPIC, name, kind, "User:alice", "*", Operation.WRITE, permission)
    return replace(acl, **changes)  # type: ignore[arg-type]


def may_write(index: AclIndex, asker: str, address: Address) -> bool:
    """Whether there is a topic that the client may write to."""
    return decided(index.allows_some(asker, address, Operation.WRITE, TOPIC))


def indexed(entries: list[AccessControlEntry]) -> AclIndex:
    index = AclIndex()
    for number, acl in enumerate(entries):
        index.add(number.to_bytes(16), acl)
    return index


@given(st.lists(acls, max_size=12), askers, clients, resource_types, names, st.booleans())
def test_verdicts_are_those_of_a_naive_evaluator(entries, asker, client, kind, name, everyone):
    index = indexed(entries)
    allowed = index.operations(asker, parse_address(client), kind, name, allow_unlisted=everyone)
    for operation in OPERATIONS:
        expected = naive_acls.allows(entries, asker, client, operation, kind, name, everyone=everyone)
        assert bool(allowed >> operation & 1) == expected, operation.name


@given(st.lists(acls, max_size=8), askers, clients, resource_types, st.booleans())
def test_permission_on_some_topic_is_that_of_a_naive_evaluator(entries, asker, client, kind, everyone):
    index = indexed(entries)
    expected = naive_acls.allows_some(entries, asker, client, Operation.WRITE, kind, everyone=everyone)
    for _ in range(2):
        address = parse_address(client)
        steps = index.allows_some(asker, address, Operation.WRITE, kind, allow_unlisted=everyone)
        assert decided(steps) == expected


@example([pattern("a", ALLOW), pattern("a", DENY)])
@example([pattern("ab", ALLOW, PatternType.PREFIXED), pattern("a", DENY, PatternType.PREFIXED)])
@example([pattern("*", ALLOW), pattern("*", DENY, PatternType.PREFIXED)])
@given(st.lists(colliding_acls, min_size=1, max_size=4))
def test_a_denied_pattern_contains_others(entries):
    expected = naive_acls.allows_some(entries, "User:alice", "10.0.0.1", Operation.WRITE, TOPIC)
    address = parse_address("10.0.0.1")
    assert may_write(indexed(entries), "User:alice", address) == expected


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
    for name in ("a", "aba"):
        for client in ("10.0.0.1", "::1"):
            allowed = index.operations("User:alice", parse_address(client), TOPIC, name)
            expected = [
                operation
                for operation in OPERATIONS
                if naive_acls.allows(rest, "User:alice", client, operation, TOPIC, name)
            ]
            assert [each for each in OPERATIONS if allowed >> each & 1] == expected
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


def test_whether_any_topic_is_permitted_looks_only_at_acls_of_the_operation(monkeypatch):
    index = indexed([entry(f"topic-{number}") for number in range(1_000)])
    looked_at = []
    of = _Hosts.of

    def counted(hosts, address):
        looked_at.append(hosts)
        return of(hosts, address)

    monkeypatch.setattr(_Hosts, "of", counted)
    address = parse_address("10.0.0.1")
    assert not may_write(index, "User:alice", address)
    assert decided(index.allows_some("User:alice", address, Operation.READ, TOPIC))
    assert len(looked_at) == 1


changes = st.tuples(st.integers(0, 7).map(lambda number: number.to_bytes(16)), contested_acls | st.none())
"""An ACL that is added, replaced or, if it is None, removed."""


def change(index: AclIndex, entries: dict[bytes, AccessControlEntry], change: Change) -> None:
    acl_id, acl = change
    if acl is not None:
        index.add(acl_id, acl)
        entries[acl_id] = acl
    elif entries.pop(acl_id, None) is not None:
        index.remove(acl_id)


@given(st.lists(changes, max_size=12))
def test_permission_on_some_topic_follows_every_change(history):
    """What was decided before is remembered for clients that ACLs do not distinguish, and only for these."""
    index = AclIndex()
    entries: dict[bytes, AccessControlEntry] = {}
    for each in history:
        change(index, entries, each)
        for asker in ("User:alice", "User:bob", "User:carol"):
            for client in ("10.0.0.1", "10.0.0.9", "192.0.2.1"):
                expected = naive_acls.allows_some(entries.values(), asker, client, Operation.WRITE, TOPIC)
                assert may_write(index, asker, parse_address(client)) == expected, (asker, client)


@given(
    st.lists(changes, max_size=12),
    st.lists(st.tuples(st.integers(0, 3), changes), max_size=acl_index.SEARCHES_MAX - 1),
)
def test_a_decision_holds_for_acls_that_change_between_its_steps(history, during):
    index = AclIndex()
    entries: dict[bytes, AccessControlEntry] = {}
    for each in history:
        change(index, entries, each)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(acl_index, "FIRST_SEARCH_STEP", 1)
        patched.setattr(acl_index, "SEARCH_STEP", 1)
        left = list(during)
        steps = index.allows_some("User:alice", parse_address("10.0.0.1"), Operation.WRITE, TOPIC)
        for decision in steps:
            if decision is None and left:
                pause, each = left[0]
                if pause:
                    left[0] = (pause - 1, each)
                else:
                    change(index, entries, each)
                    del left[0]
    expected = naive_acls.allows_some(entries.values(), "User:alice", "10.0.0.1", Operation.WRITE, TOPIC)
    assert decision == expected


def test_a_denial_that_is_replaced_between_two_steps_still_denies(monkeypatch):
    monkeypatch.setattr(acl_index, "FIRST_SEARCH_STEP", 1)
    monkeypatch.setattr(acl_index, "SEARCH_STEP", 1)
    index = indexed([pattern(f"a{number}", ALLOW) for number in range(3)])
    denial = pattern("a", DENY, PatternType.PREFIXED, principal="User:*")
    index.add(b"denial", denial)
    steps = index.allows_some("User:alice", parse_address("10.0.0.1"), Operation.WRITE, TOPIC)
    assert next(steps) is None
    # Meanwhile `User:*` has no ACL at all.
    index.remove(b"denial")
    index.add(b"denial", denial)
    assert not decided(steps)


def test_acls_that_keep_changing_do_not_keep_a_client_waiting():
    allowed = [pattern(f"a{number}", ALLOW) for number in range(1_000)]
    index = indexed([pattern("a", DENY, PatternType.PREFIXED), *allowed])
    steps = []
    for step in index.allows_some("User:alice", parse_address("10.0.0.1"), Operation.WRITE, TOPIC):
        steps.append(step)
        index.add(b"changed", pattern(f"a-{len(steps)}", ALLOW))
    assert steps[-1] is False
    assert acl_index.SEARCHES_MAX < len(steps) <= 10 * acl_index.SEARCHES_MAX
    assert index._decisions == {}


def test_a_long_search_has_steps_of_bounded_size_and_is_not_repeated(monkeypatch):
    index = indexed(
        [pattern("t", DENY, PatternType.PREFIXED)]
        + [pattern(f"t-{number}", ALLOW, host="10.0.0.0/8") for number in range(3_000)]
        + [pattern(f"t-{number}", ALLOW, principal="User:*") for number in range(3_000)]
    )
    looked_at = 0
    of = _Hosts.of

    def counted(hosts, address):
        nonlocal looked_at
        looked_at += 1
        return of(hosts, address)

    monkeypatch.setattr(_Hosts, "of", counted)
    address = parse_address("10.0.0.1")
    steps, sizes = [], []
    for step in index.allows_some("User:alice", address, Operation.WRITE, TOPIC):
        steps.append(step)
        sizes.append(looked_at)
        looked_at = 0
    assert steps[-1] is False
    assert sum(sizes) > 6_000
    assert sizes[0] <= acl_index.FIRST_SEARCH_STEP and max(sizes) <= acl_index.SEARCH_STEP
    # ACLs of others, and of other types, do not matter.
    index.add(b"1", pattern("t-1", ALLOW, principal="User:bob"))
    index.add(b"2", pattern("t-1", ALLOW, resource_type=ResourceType.GROUP))
    assert not may_write(index, "User:alice", address)
    assert looked_at == 0
    assert not may_write(index, "User:alice", parse_address("192.0.2.1"))
    assert looked_at > 3_000
    # Principals without ACLs of their own share what is decided for all, wherever they are.
    index.add(b"3", pattern("t", DENY, PatternType.PREFIXED, principal="User:*"))
    assert not may_write(index, "User:carol", address)
    looked_at = 0
    for name in ("User:carol", "User:dave"):
        assert not may_write(index, name, parse_address("192.0.2.1"))
    assert looked_at == 0
    index.add(b"4", pattern("u", ALLOW, principal="User:*"))
    assert may_write(index, "User:dave", address) and may_write(index, "User:alice", address)
