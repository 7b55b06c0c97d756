"""The ACLs that the security page recommends, and how a run finds those that are not needed."""

import json

from runnel.testing import Broker
from tests.server.cli import CommandLine
from tools.conformance import acls
from tools.conformance.acls import Permission

AUTHORIZER = {"authorizer.class.name": "acl", "super.users": "User:ANONYMOUS"}


def test_the_commands_of_the_page_create_what_is_compared(capfd, tmp_path, monkeypatch):
    with Broker(AUTHORIZER) as broker:
        run = CommandLine(broker.bootstrap_servers, capfd, tmp_path, monkeypatch)
        for line, (_, *words) in acls.commands().items():
            if "#" not in line:
                run.ok(*words)
        listed = run.ok("acl", "list", "--json").json
    assert len(listed) == len(acls.permissions()) > 20


def test_permissions_that_no_allowed_request_needed(tmp_path):
    used = Permission("User:etl", "READ", "TOPIC", "orders-*")
    literal = Permission("User:etl", "READ", "GROUP", "etl")
    event = {"outcome": "allowed", "principal": "User:etl", "operation": "READ"}
    on_topic = {**event, "resource_type": "TOPIC", "resource_name": "orders-eu"}
    events = [
        on_topic,
        {**event, "resource_type": "GROUP", "resource_name": "etl-2"},
        {**event, "outcome": "denied", "resource_type": "GROUP", "resource_name": "etl"},
        {**on_topic, "principal": "User:other", "operation": "WRITE"},
        {"outcome": "not recorded", "denials": 1},
    ]
    log = tmp_path / "audit.jsonl"
    log.write_text("".join(json.dumps(each) + "\n" for each in events))
    write = Permission("User:etl", "WRITE", "TOPIC", "orders-*")
    assert acls.unused(log, [used, literal, write]) == [literal, write]
