"""`runnel acl` and `runnel role`."""

from pathlib import Path

import pytest

from runnel.testing import Broker
from tests.server.cli import CommandLine


@pytest.fixture(scope="module")
def broker():
    with Broker({"authorizer.class.name": "acl", "super.users": "User:ANONYMOUS"}) as broker:
        yield broker


@pytest.fixture
def secured(broker, capfd, tmp_path: Path, monkeypatch) -> CommandLine:
    return CommandLine(broker.bootstrap_servers, capfd, tmp_path, monkeypatch)


def test_acls_are_added_listed_and_removed(secured):
    run = secured
    run.ok(
        "acl", "add", "topic", "orders-*", "--to", "User:etl", "--allow", "read", "--deny", "alter-configs"
    )
    run.ok("acl", "add", "cluster", "*", "--principal", "User:ops", "--allow", "ALL", "--host", "10.0.0.0/8")
    rows = run.ok("acl", "list", "--json").json
    assert {
        (row["kind"], row["pattern"], row["permission"], row["operation"], row["host"]) for row in rows
    } == {
        ("topic", "orders-*", "allow", "read", "*"),
        ("topic", "orders-*", "deny", "alter-configs", "*"),
        ("cluster", "kafka-cluster", "allow", "all", "10.0.0.0/8"),
    }
    applying = run.ok("acl", "list", "--kind", "topic", "--applies-to", "orders-eu").lines
    assert len(applying) == 3 and "orders-*" in applying[1]
    assert len(run.ok("acl", "list", "--on", "orders-*", "--json").json) == 2
    assert run.ok("acl", "list", "--on", "orders-", "--json").json == []
    run.ok("acl", "remove", "--of", "User:etl", "--yes")
    assert [row["principal"] for row in run.ok("acl", "list", "--json").json] == ["User:ops"]
    run.ok("acl", "remove", "--kind", "cluster", "--yes")
    assert run.ok("acl", "list", "--json").json == []


def test_roles_are_granted_listed_and_revoked(secured):
    run = secured
    for role in ("reader", "writer"):
        run.ok("role", "grant", role, "--on", "orders-*", "--to", "User:etl")
    assert run.ok("role", "list", "--of", "User:etl", "--json").json == [
        {"role": "reader", "pattern": "orders-*", "principal": "User:etl", "host": "*"},
        {"role": "writer", "pattern": "orders-*", "principal": "User:etl", "host": "*"},
    ]
    assert len(run.ok("acl", "list", "--json").json) == 4
    run.ok("role", "revoke", "reader", "--on", "orders-*", "--principal", "User:etl")
    assert [line.split()[1] for line in run.ok("role", "list").lines[1:]] == ["writer"]
    outcome = run("role", "revoke", "reader", "--on", "orders-*", "--from", "User:etl")
    assert outcome.code == 1 and "is not reader on orders-*" in outcome.err
    run.ok("role", "revoke", "writer", "--on", "orders-*", "--from", "User:etl")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("acl", "add", "topic", "t", "--to", "User:a"), "nothing to add"),
        (("acl", "add", "topic", "t", "--to", "alice", "--allow", "read"), "not a principal"),
        (("acl", "add", "topic", "t", "--to", "User:a", "--allow", "reed"), "not an operation"),
        (("acl", "remove", "--yes"), "which ACLs?"),
        (("acl", "list", "--on", "a", "--applies-to", "b"), "cannot be used together"),
        (("role", "grant", "reader", "--on", "", "--to", "User:a"), "must not be empty"),
    ],
)
def test_usage_errors(secured, arguments, expected):
    outcome = secured(*arguments)
    assert outcome.code == 2 and expected in " ".join(outcome.err.split())


def test_an_invalid_host_is_refused_by_the_broker(secured):
    outcome = secured(
        "acl", "add", "topic", "t", "--to", "User:a", "--allow", "read", "--host", "10.0.0.0/99"
    )
    assert outcome.code == 1 and "INVALID_REQUEST" in outcome.err
