"""Which decisions are recorded."""

from runnel.security.acl import Operation, Permission, ResourceType
from runnel.security.audit import AuditFilter, AuditPolicy, audit_event

READ, ALTER = Operation.READ, Operation.ALTER


def test_changes_are_recorded_and_the_rest_if_configured():
    for allowed, expected in (("none", (False, False)), ("changes", (True, False)), ("all", (True, True))):
        chosen = AuditFilter(AuditPolicy(allowed))
        found = tuple(chosen.admits(("k",), each, 0, is_allowed=True) for each in (ALTER, READ))
        assert found == expected, allowed


def test_the_same_read_is_recorded_once_in_a_while():
    chosen = AuditFilter(AuditPolicy("all", repeat_interval_ms=100))
    times = [time for time in range(0, 250, 10) if chosen.admits(("k",), READ, time, is_allowed=True)]
    assert times == [0, 100, 200]
    assert chosen.admits(("other",), READ, 210, is_allowed=True)
    assert all(chosen.admits(("k",), ALTER, 211, is_allowed=True) for _ in range(3))


def test_denials_are_recorded_up_to_a_rate():
    chosen = AuditFilter(AuditPolicy(denials_per_second_max=2))
    admitted = [chosen.admits(("k",), READ, 999 + each, is_allowed=False) for each in range(5)]
    assert admitted == [True, True, True, False, False]
    assert chosen.suppressed == 2


def test_an_event_names_what_was_decided():
    permission = Permission(READ, ResourceType.TOPIC, "orders")
    event = audit_event(7, "User:a", "10.0.0.1", "app", "EXTERNAL", 1, permission, is_allowed=False)
    assert event == {
        "timestamp_ms": 7,
        "outcome": "denied",
        "principal": "User:a",
        "host": "10.0.0.1",
        "client_id": "app",
        "listener": "EXTERNAL",
        "api": "Fetch",
        "operation": "READ",
        "resource_type": "TOPIC",
        "resource_name": "orders",
    }
