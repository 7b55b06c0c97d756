"""The authorizer through random histories of ACLs, with what connections remember, against Kafka's rules."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from runnel.broker.runtime.acl_authorizer import REMEMBERED_CHARACTERS_MAX, VERDICTS_MAX, AclAuthorizer
from runnel.ports.service import Session
from runnel.schemas.metadata import (
    AccessControlEntryRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
    SnapshotRecord,
)
from runnel.security.acl import AccessControlEntry, Operation, Permission, ResourceType
from runnel.security.principal import Principal
from tests.broker.authorized import acl_record
from tests.security import naive_acls
from tests.security.naive_acls import OPERATIONS

ids = st.integers(0, 5).map(lambda number: number.to_bytes(16))
steps = st.one_of(
    st.tuples(st.just("add"), st.lists(st.tuples(ids, naive_acls.acls), min_size=1, max_size=3)),
    st.tuples(st.just("remove"), st.lists(ids, min_size=1, max_size=2, unique=True)),
    st.tuples(st.just("replace"), st.dictionaries(ids, naive_acls.acls, max_size=4)),
    st.tuples(st.just("snapshot"), st.none()),
    st.tuples(st.just("load"), st.none()),
    st.tuples(st.just("re-authenticate"), naive_acls.askers),
)
super_users = st.frozensets(
    st.sampled_from(["User:alice", "User:*", "Group:alice", "User:carol"]), max_size=2
)


def record(acl_id: bytes, acl: AccessControlEntry) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        acl_id,
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


class History:
    """An authorizer, and the ACLs that it should have."""

    def __init__(self, super_users: frozenset[str], *, everyone: bool) -> None:
        self.super_users, self.everyone = super_users, everyone
        self.authorizer = AclAuthorizer(super_users, allow_unlisted=everyone, is_audited=False)
        self.acls: dict[bytes, AccessControlEntry] = {}
        self.is_loaded = False

    def step(self, kind: str, given: object) -> None:
        records: list[MetadataRecord] = []
        if kind == "add":
            assert isinstance(given, list)
            records += [record(*each) for each in given]
            self.acls.update(given)
        elif kind == "remove":
            assert isinstance(given, list)
            known = [each for each in given if each in self.acls]
            records += [RemoveAccessControlEntryRecord(each) for each in known]
            self.acls = {each: acl for each, acl in self.acls.items() if each not in known}
        elif kind == "replace":
            assert isinstance(given, Mapping)
            for _ in self.authorizer.replace(given):
                pass
            self.acls = dict(given)
        elif kind == "snapshot":
            records.append(SnapshotRecord())
            self.acls.clear()
        elif kind == "load":
            self.authorizer.loaded()
            self.is_loaded = True
        self.authorizer.replayed(records)

    def allows(self, session: Session, operation: Operation, kind: ResourceType, name: str) -> bool:
        asker = str(session.principal)
        if not self.is_loaded:
            # The ACLs are not known yet.
            return asker in self.super_users
        return naive_acls.allows(
            self.acls.values(),
            asker,
            session.client_host,
            operation,
            kind,
            name,
            super_users=self.super_users,
            everyone=self.everyone,
        )

    def check(self, session: Session, kind: ResourceType, name: str) -> None:
        bits = self.authorizer.operations(session, kind, name)
        for operation in OPERATIONS:
            expected = self.allows(session, operation, kind, name)
            assert bool(bits >> operation & 1) == expected, (operation.name, name)
            assert self.authorizer.allows(session, Permission(operation, kind, name)) == expected
        asker = str(session.principal)
        assert self.authorizer.allows_all(session) == (asker in self.super_users)
        some = asker in self.super_users or (
            self.is_loaded
            and naive_acls.allows_some(
                self.acls.values(),
                asker,
                session.client_host,
                Operation.WRITE,
                kind,
                super_users=self.super_users,
                everyone=self.everyone,
            )
        )
        steps = self.authorizer.allows_some(session, Operation.WRITE, kind)
        assert naive_acls.decided(steps) == some


def principal(name: str) -> Principal:
    kind, _, rest = name.partition(":")
    return Principal(kind, rest)


@given(
    st.lists(steps, max_size=8),
    st.frozensets(st.sampled_from(["User:alice", "User:*", "Group:alice", "User:carol"]), max_size=2),
    st.booleans(),
    st.lists(st.tuples(naive_acls.askers, naive_acls.clients), min_size=1, max_size=3),
    st.lists(st.tuples(naive_acls.resource_types, naive_acls.names), min_size=1, max_size=3),
    st.booleans(),
)
def test_connections_follow_every_change(history, administrators, everyone, connections, asked, is_loaded):
    world = History(administrators, everyone=everyone)
    if is_loaded:
        world.step("load", None)
    sessions = [
        Session(host, 1, "PLAINTEXT", number, principal(name))
        for number, (name, host) in enumerate(connections)
    ]
    for kind, details in [("start", None), *history]:
        world.step(kind, details)
        if kind == "re-authenticate":
            sessions[0].principal = principal(details)
        for session in sessions:
            for resource_type, name in asked:
                world.check(session, resource_type, name)


def test_cached_decisions_are_bounded_and_stay_correct():
    authorizer = AclAuthorizer(frozenset(), allow_unlisted=False, is_audited=False)
    authorizer.replayed([acl_record(1, "t7", Operation.READ), acl_record(2, "t300", Operation.WRITE)])
    authorizer.loaded()
    session = Session("127.0.0.1", 1, "PLAINTEXT", 1, principal("User:alice"))
    for _ in range(2):
        bits = [
            authorizer.operations(session, ResourceType.TOPIC, f"t{number}")
            for number in range(VERDICTS_MAX * 2)
        ]
        assert [number for number, allowed in enumerate(bits) if allowed] == [7, 300]
    assert len(session.verdicts.by_resource) <= VERDICTS_MAX
    name = "t" * (REMEMBERED_CHARACTERS_MAX + 1)
    assert authorizer.operations(session, ResourceType.TOPIC, name) == 0
    assert (ResourceType.TOPIC, name) not in session.verdicts.by_resource


def test_who_is_not_named_by_acls_gets_at_the_audit_topic_by_no_detour():
    def may(name: str, operation: Operation, resource_type: ResourceType, resource: str) -> bool:
        session = Session("127.0.0.1", 9, "L", 1, principal=Principal("User", name))
        return authorizer.allows(session, Permission(operation, resource_type, resource))

    def may_with_cluster(name: str, operation: Operation) -> bool:
        return may(name, operation, ResourceType.CLUSTER, "kafka-cluster")

    authorizer = AclAuthorizer(
        frozenset({"User:node"}), allow_unlisted=True, is_audited=True, audit_topic="audit"
    )
    authorizer.loaded()
    assert not may("bob", Operation.READ, ResourceType.TOPIC, "audit")
    assert may("bob", Operation.DELETE, ResourceType.TOPIC, "orders")
    # Deletes any topic; creates ACLs; reads as a replica, and forwards requests of others; creates the topic.
    for operation in (Operation.DELETE, Operation.ALTER, Operation.CLUSTER_ACTION, Operation.CREATE):
        assert not may_with_cluster("bob", operation)
        assert may_with_cluster("node", operation)
    for operation in (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.IDEMPOTENT_WRITE):
        assert may_with_cluster("bob", operation)
    authorizer.replayed(
        [acl_record(1, "kafka-cluster", Operation.CREATE, resource_type=ResourceType.CLUSTER)]
    )
    assert may_with_cluster("alice", Operation.CREATE)
    assert not may_with_cluster("alice", Operation.DESCRIBE)
