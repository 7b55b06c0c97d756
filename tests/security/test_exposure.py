"""What follows from the facts about listeners, ACLs and files."""

from dataclasses import replace
from typing import Any

import pytest

from runnel.model.security_protocol import SecurityProtocol
from runnel.security.acl import AccessControlEntry, Operation, PatternType, PermissionType, ResourceType
from runnel.security.exposure import Facts, ListenerFacts, LooseFile, Severity, findings

PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = SecurityProtocol
NOW_S = 1_800_000_000
DAY_S = 86400


def listener(protocol: SecurityProtocol = PLAINTEXT, *, is_local: bool = False, **known) -> ListenerFacts:
    return ListenerFacts(name=protocol.name, protocol=protocol, is_local=is_local, **known)


SAFE = listener(
    SASL_SSL,
    mechanisms=("SCRAM-SHA-512",),
    has_endless_sessions=False,
    tls_versions=("TLSv1.2", "TLSv1.3"),
    verifies_hosts=True,
    expires_s=NOW_S + 300 * DAY_S,
)


def facts(*listeners: ListenerFacts, **known) -> Facts:
    return Facts(now_s=NOW_S, listeners=listeners or (SAFE,), **{"has_authorizer": True, **known})


def found(*listeners: ListenerFacts, **known) -> dict[str, Severity]:
    return {each.name: each.severity for each in findings(facts(*listeners, **known))}


def acl(principal: str, name: str, **changes) -> AccessControlEntry:
    own = AccessControlEntry(
        ResourceType.TOPIC, name, PatternType.LITERAL, principal, "*", Operation.READ, PermissionType.ALLOW
    )
    return replace(own, **changes)


def test_a_protected_node_has_no_findings():
    known = {"has_quotas": True, "limits_connections": True, "is_encrypted": True, "has_audit_log": True}
    assert found(acls=[acl("User:etl", "*"), acl("User:*", "x", operation=Operation.DESCRIBE)], **known) == {}


def test_what_is_not_known_is_no_finding():
    assert found() == {}


def test_metrics_that_other_machines_can_read_are_reported():
    assert found(has_remote_admin_listener=True) == {"open-metrics": Severity.MEDIUM}
    assert found(has_remote_admin_listener=False) == {}


def test_an_open_listener_is_reported_by_who_can_reach_it():
    assert found(listener(), has_authorizer=False) == {
        "open-to-everyone": Severity.HIGH,
        "unencrypted": Severity.MEDIUM,
    }
    assert found(listener(is_local=True), has_authorizer=False) == {"open-to-everyone": Severity.LOW}
    of_nodes = findings(facts(listener(is_for_nodes=True), has_authorizer=False))
    assert "act as a broker or controller" in of_nodes[0].consequence


@pytest.mark.parametrize("is_local", [False, True])
def test_an_authorizer_without_authentication_is_always_severe(is_local):
    every = found(listener(is_local=is_local))
    assert every["authorizer-without-authentication"] is Severity.HIGH
    # One listener on which clients have names is enough for ACLs to have a meaning.
    assert "authorizer-without-authentication" not in found(listener(is_local=is_local), SAFE)


def test_anonymous_super_users_are_always_severe():
    assert found(SAFE, super_users=frozenset({"User:ANONYMOUS"})) == {"anonymous-super-user": Severity.HIGH}
    assert found(SAFE, super_users=frozenset({"User:admin"})) == {}


def test_clients_without_certificates_are_anonymous():
    tls: dict[str, Any] = {"tls_versions": ("TLSv1.3",), "verifies_hosts": True}
    assert found(listener(SSL, client_auth="required", **tls)) == {}
    assert found(listener(SSL, client_auth="requested", **tls)) == {"optional-certificates": Severity.LOW}
    assert found(listener(SSL, client_auth="none", **tls), has_authorizer=False) == {
        "open-to-everyone": Severity.HIGH
    }


def test_every_user_may_do_everything_without_an_authorizer():
    assert found(SAFE, has_authorizer=False) == {"no-authorizer": Severity.MEDIUM}


def test_resources_without_acls_are_open_to_anonymous_clients():
    open_listener = listener(SSL)
    assert found(open_listener, allows_unlisted=True)["open-without-acls"] is Severity.HIGH
    local = found(replace(open_listener, is_local=True), allows_unlisted=True)
    assert local["open-without-acls"] is Severity.MEDIUM


def test_resources_without_acls_are_open_to_every_user():
    assert found(SAFE, allows_unlisted=True) == {"open-without-acls": Severity.MEDIUM}
    certified = listener(SSL, client_auth="required", tls_versions=("TLSv1.3",), verifies_hosts=True)
    assert found(certified, allows_unlisted=True) == {"open-without-acls": Severity.MEDIUM}
    (finding,) = findings(facts(SAFE, allows_unlisted=True))
    assert "create ACLs" in finding.consequence


def test_tls_without_certificates_of_clients_does_not_tell_them_apart():
    unnamed = "authorizer-without-authentication"
    assert found(listener(SSL), listener())[unnamed] is Severity.HIGH
    assert unnamed not in found(listener(SSL, client_auth="requested"))
    assert unnamed not in found(listener(SSL), SAFE)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (acl("User:ANONYMOUS", "orders"), Severity.MEDIUM),
        (acl("User:*", "orders"), Severity.MEDIUM),
        (acl("User:*", "*"), Severity.HIGH),
        (acl("User:ANONYMOUS", "kafka-cluster", resource_type=ResourceType.CLUSTER), Severity.HIGH),
        (acl("User:*", "*", operation=Operation.DESCRIBE), None),
        (acl("User:*", "*", permission_type=PermissionType.DENY), None),
        (acl("User:etl", "*"), None),
    ],
)
def test_acls_of_anonymous_clients(entry, expected):
    assert found(listener(SSL), acls=[entry]).get("acls-of-anonymous") is expected


def test_acls_of_all_users_are_reported_for_authenticated_clients():
    assert found(SAFE, acls=[acl("User:*", "*"), acl("User:*", "orders")]) == {
        "acls-of-all-users": Severity.MEDIUM
    }
    many = [acl("User:*", "*", operation=each) for each in range(Operation.READ, Operation.DESCRIBE)]
    (finding,) = findings(facts(SAFE, acls=many))
    assert finding.consequence == (
        "Every client can READ every topic; WRITE every topic; CREATE every topic; 2 more."
    )


@pytest.mark.parametrize(
    ("mechanism", "is_local", "expected"),
    [
        ("PLAIN", False, {"secrets-in-clear": Severity.HIGH, "unencrypted": Severity.MEDIUM}),
        ("OAUTHBEARER", True, {"secrets-in-clear": Severity.LOW}),
        ("SCRAM-SHA-512", False, {"scram-in-clear": Severity.MEDIUM, "unencrypted": Severity.MEDIUM}),
        ("SCRAM-SHA-512", True, {}),
    ],
)
def test_passwords_on_unencrypted_connections(mechanism, is_local, expected):
    assert found(listener(SASL_PLAINTEXT, is_local=is_local, mechanisms=(mechanism,))) == expected


def test_tls_of_a_listener():
    assert found(replace(SAFE, tls_versions=("TLSv1.1", "TLSv1.2"))) == {"old-tls": Severity.HIGH}
    assert found(replace(SAFE, is_for_nodes=True, verifies_hosts=False)) == {
        "unverified-nodes": Severity.MEDIUM
    }
    assert found(replace(SAFE, has_endless_sessions=True)) == {"endless-sessions": Severity.LOW}


@pytest.mark.parametrize(
    ("days", "expected"), [(31, None), (29, Severity.MEDIUM), (6, Severity.HIGH), (-1, Severity.HIGH)]
)
def test_certificates_that_expire(days, expected):
    assert found(replace(SAFE, expires_s=NOW_S + days * DAY_S)).get("certificate-expires") is expected


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (LooseFile("k", "the key store", 0o644, True), Severity.HIGH),
        (LooseFile("k", "the key store", 0o640, True), Severity.MEDIUM),
        (LooseFile("a", "the audit log", 0o644, False), Severity.MEDIUM),
    ],
)
def test_files_that_others_can_use(file, expected):
    assert found(loose_files=[file]) == {"loose-permissions": expected}


def test_protections_that_are_not_used_are_the_last_findings():
    known = {"has_quotas": False, "limits_connections": False, "is_encrypted": False, "has_audit_log": False}
    every = findings(facts(listener(), has_authorizer=False, **known))
    assert [each.severity for each in every] == sorted(
        (each.severity for each in every), key=list(Severity).index
    )
    assert [each.name for each in every[-4:]] == [
        "no-audit-log",
        "no-quotas",
        "unlimited-connections",
        "not-encrypted-at-rest",
    ]
    assert all(each.consequence.endswith(".") and each.remedy.endswith(".") for each in every)
