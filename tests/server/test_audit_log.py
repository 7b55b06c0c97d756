"""The file and the logger of the audit log."""

import json
import logging
import os
import stat
import time

import pytest

from runnel.ports.service import Session
from runnel.security.acl import Operation, Permission, ResourceType
from runnel.security.audit import AuditPolicy
from runnel.security.principal import Principal
from runnel.server.audit_log import AuditLog

SESSION = Session("10.0.0.1", 1, "PLAINTEXT", 1, Principal("User", "mallory\n{}"))


def permission(name: str) -> Permission:
    return Permission(Operation.DELETE, ResourceType.TOPIC, name)


def opened(path, **options) -> AuditLog:
    values = {"has_logger": False, "queue_max": 10_000, "now_ms": lambda: 5, **options}
    return AuditLog(AuditPolicy(denials_per_second_max=3), path=str(path) if path else "", **values)


def lines_of(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_decisions_are_lines_of_a_private_file(tmp_path):
    path = tmp_path / "audit.jsonl"
    log = opened(path)
    log.decided(SESSION, "app", 20, permission("orders"), is_allowed=True)
    for number in range(5):
        log.decided(SESSION, None, 20, permission(f"secret\n{number}"), is_allowed=False)
    log.close()
    *events, last = lines_of(path)
    assert [(each["outcome"], each["resource_name"]) for each in events if "principal" in each][:2] == [
        ("allowed", "orders"),
        ("denied", "secret\n0"),
    ]
    assert events[0]["principal"] == "User:mallory\n{}" and events[0]["api"] == "DeleteTopics"
    assert (last["outcome"], last["denials_over_limit"], last["dropped"]) == ("not recorded", 2, 0)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_what_does_not_fit_into_the_queue_is_counted(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    # It is not read yet: the thread waits in the midst of a write, as with a slow disk.
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = opened(path, queue_max=5)
    for number in range(20_000):
        log.decided(SESSION, None, 20, permission(str(number)), is_allowed=True)
    assert log._dropped > 0 and len(log._queue) <= 5
    received = b""
    os.set_blocking(reader, True)
    while b"not recorded" not in received:
        received += os.read(reader, 65536)
    log.close()
    os.close(reader)


def test_a_rotated_file_is_opened_again(tmp_path):
    path = tmp_path / "audit.jsonl"
    log = opened(path)

    def record(name: str) -> None:
        log.decided(SESSION, None, 20, permission(name), is_allowed=True)
        while not path.exists() or name not in path.read_text():
            time.sleep(0.005)

    record("first")
    path.rename(tmp_path / "audit.1")
    record("second")
    log.close()
    assert [each["resource_name"] for each in lines_of(path)] == ["second"]


def test_events_can_be_logged(caplog):
    caplog.set_level(logging.INFO, "runnel.audit")
    log = opened("", has_logger=True)
    log.decided(SESSION, None, 20, permission("orders"), is_allowed=True)
    log.close()
    assert [json.loads(each.getMessage())["resource_name"] for each in caplog.records] == ["orders"]


def test_a_file_that_cannot_be_opened_prevents_the_start(tmp_path):
    with pytest.raises(OSError):
        opened(tmp_path / "missing" / "audit.jsonl")
