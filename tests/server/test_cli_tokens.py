"""`runnel token`: created, described, renewed, used and expired."""

from base64 import b64decode

import pytest

from runnel.client.tokens import TokenView
from runnel.messages.metadata import MetadataRequest
from runnel.security.sasl_client import Credentials
from tests.security.sasl_node import Caller, sasl_node
from tests.server.cli import CommandLine

PROPERTIES = """
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.username=alice
sasl.password=alice-secret
"""


@pytest.fixture
def node(tmp_path):
    with sasl_node(str(tmp_path / "data")) as node:
        yield node


@pytest.fixture
def run(node, capfd, tmp_path, monkeypatch) -> CommandLine:
    properties = tmp_path / "client.properties"
    properties.write_text(PROPERTIES)
    monkeypatch.setenv("RUNNEL_COMMAND_CONFIG", str(properties))
    address = f"127.0.0.1:{node.ports['SASL_PLAINTEXT']}"
    return CommandLine(address, capfd, tmp_path, monkeypatch)


def test_a_token_is_created_used_renewed_and_expired(run, node, monkeypatch):
    options = ("--max-life-time-period", "7d", "--renewer-principal", "User:bob")
    (token,) = run.ok("token", "create", *options, "--json").json
    assert (token["owner"], token["renewers"]) == ("User:alice", ["User:bob"])
    assert token["max_ms"] - token["issued_ms"] == 7 * 86_400_000
    assert run.ok("token", "describe", "--json").json == [token]
    assert token["hmac"] in run.ok("token", "describe", "--owner-principal", "User:alice").out
    assert run.ok("token", "describe", "--owner-principal", "User:carol", "--json").json == []

    def log_in() -> int:
        # A client with the token: its id is the user, its HMAC in base64 the password.
        with Caller(node.ports["SASL_PLAINTEXT"]) as caller:
            credentials = Credentials(token["token_id"], token["hmac"], is_token=True)
            code: int = caller.log_in("SCRAM-SHA-256", credentials).error_code
            if not code:
                assert caller.call(MetadataRequest()).brokers
            return code

    assert log_in() == 0
    run.ok("token", "renew", "--hmac", token["hmac"], "--renew-time-period", "3600000")
    (renewed,) = run.ok("token", "describe", "--json").json
    assert 0 < renewed["expires_ms"] - renewed["issued_ms"] < 2 * 3_600_000
    assert len(b64decode(token["hmac"])) == 64
    monkeypatch.setenv("RUNNEL_TOKEN_HMAC", token["hmac"])
    run.ok("token", "expire")
    assert log_in() != 0


def test_errors_name_the_option(run):
    assert run("token", "renew", "--hmac", "not base64!").code == 2
    assert "--renew-time-period" in run("token", "renew", "--hmac", "aGk=", "--renew-time-period", "soon").err
    assert "DELEGATION_TOKEN_NOT_FOUND" in run.fails("token", "renew", "--hmac", "aGk=").err
    assert run("token", "create", "--renewer-principal", "bob").code == 2


def test_extreme_periods(run):
    longest = str(2**63 - 1)
    (token,) = run.ok("token", "create", "--max-life-time-period", longest, "--json").json
    assert token["max_ms"] - token["issued_ms"] == 7 * 86_400_000
    assert "expires" in run.ok("token", "renew", "--hmac", token["hmac"], "--renew-time-period", longest).out
    for period in (str(2**63), "9" * 30 + "d"):
        assert "too long" in run("token", "create", "--max-life-time-period", period).err


def test_a_token_does_not_show_its_secret():
    token = TokenView("id", b"a secret", "User:a", "User:a", (), 1, 2, 3)
    assert "secret" not in repr(token)
