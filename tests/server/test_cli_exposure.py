"""`runnel security check`: of a configuration, and of a running cluster; what is logged at the start."""

import logging
import os

import pytest

from runnel.testing import Broker
from tests.server.cli import CommandLine
from tools.certificates import CaFolder, CertificateAuthority

AUTHORIZED = {"authorizer.class.name": "acl", "super.users": "User:admin"}


@pytest.fixture
def runnel(capfd, tmp_path, monkeypatch) -> CommandLine:
    monkeypatch.delenv("RUNNEL_BOOTSTRAP", raising=False)
    monkeypatch.chdir(tmp_path)
    return CommandLine(None, capfd, tmp_path, monkeypatch)


def names(outcome) -> dict[str, str]:
    return {each["name"]: each["severity"] for each in outcome.json["findings"]}


def assignments(settings: dict[str, str]) -> list[str]:
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


def test_a_configuration_is_checked_without_a_start(runnel, tmp_path):
    outcome = runnel("security", "check", "--listen", "0.0.0.0:9092", "--format", "json")
    assert outcome.code == 1
    assert names(outcome)["open-to-everyone"] == "high"
    assert outcome.json["listeners"] == [
        {"name": "PLAINTEXT", "protocol": "PLAINTEXT", "clients": "clients do not authenticate", "nodes": [1]}
    ]
    assert sorted(os.listdir(tmp_path)) == ["stdin"]
    text = runnel("security", "check", "--listen", "0.0.0.0:9092")
    assert text.code == 1 and "HIGH open-to-everyone" in text.out
    local = runnel.ok("security", "check", "--listen", "127.0.0.1:9092")
    assert "LOW open-to-everyone" in local.out and "not checked: ACLs" in local.out


@pytest.mark.parametrize(
    ("where", "is_open"), [("127.0.0.1:9644", False), ("[::]:9644", True), ("off", False)]
)
def test_the_admin_listener_is_checked(runnel, where, is_open):
    outcome = runnel("security", "check", "--set", f"admin.listeners={where}", "--format", "json")
    assert ("open-metrics" in names(outcome)) is is_open


def test_files_and_certificates_are_checked(runnel, tmp_path):
    key_store = CaFolder(tmp_path).issue("server", "127.0.0.1").pem
    os.chmod(key_store, 0o644)
    config = tmp_path / "server.properties"
    config.write_text(
        "listeners=SSL://127.0.0.1:9094\nssl.keystore.type=PEM\n"
        f"ssl.keystore.location={key_store}\nssl.key.password=\nlog.dirs={tmp_path / 'data'}\n"
    )
    os.chmod(config, 0o600)
    outcome = runnel("security", "check", "--config", str(config), "--json")
    assert names(outcome)["loose-permissions"] == "high"
    assert [each["consequence"] for each in outcome.json["findings"] if each["name"] == "loose-permissions"]
    os.chmod(key_store, 0o600)
    assert "loose-permissions" not in names(runnel.ok("security", "check", "-c", str(config), "--json"))


def test_a_configuration_that_cannot_start_is_an_error(runnel):
    missing = {"listeners": "SSL://:9094", "ssl.keystore.type": "PEM", "ssl.keystore.location": "missing.pem"}
    assert "missing.pem" in runnel.fails("security", "check", *assignments(missing)).err
    assert "no mechanism" in runnel.fails("security", "check", "--set", "listeners=SASL_SSL://:9094").err


def test_a_running_cluster_is_checked(runnel):
    with Broker(settings={**AUTHORIZED, "super.users": "User:ANONYMOUS"}) as broker:
        server = ("--bootstrap-server", broker.bootstrap_servers)
        found = runnel("security", "check", *server, "--format", "json")
        assert found.code == 1
        assert names(found) == {
            "authorizer-without-authentication": "high",
            "anonymous-super-user": "high",
            "no-audit-log": "low",
            "no-quotas": "low",
            "unlimited-connections": "low",
            "not-encrypted-at-rest": "low",
        }
        runnel.ok("quota", "set", "--user-default", "--producer-byte-rate", "1000000", *server)
        runnel.ok("acl", "add", "topic", "*", "--to", "User:*", "--allow", "read", *server)
        changed = names(runnel("security", "check", *server, "--json"))
        assert changed["acls-of-all-users"] == "medium" and "no-quotas" not in changed


def test_a_check_that_sees_nothing_does_not_say_that_there_are_no_findings(runnel):
    with Broker(settings=AUTHORIZED) as broker:
        outcome = runnel.fails("security", "check", "-b", broker.bootstrap_servers)
    assert "no broker could be checked" in outcome.err and "CLUSTER_AUTHORIZATION_FAILED" in outcome.err


def test_an_open_cluster_on_loopback_has_no_severe_finding(runnel):
    with Broker() as broker:
        outcome = runnel.ok("security", "check", "-b", broker.bootstrap_servers, "--json")
    assert names(outcome)["open-to-everyone"] == "low"


def test_certificates_of_a_running_broker_are_checked(runnel, tmp_path):
    ca = CertificateAuthority()
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": ca.issue("node", ends_days=5).write(tmp_path / "node.pem"),
    }
    client = ("-X", "security.protocol=SSL", "-X", f"ssl.ca.location={ca.write(tmp_path / 'ca.pem')}")
    with Broker(settings, security_protocol="SSL") as broker:
        outcome = runnel("security", "check", "-b", broker.bootstrap_servers, *client, "--json")
    assert (outcome.code, names(outcome)["certificate-expires"]) == (1, "high"), outcome
    assert outcome.json["listeners"][0]["clients"] == "clients do not authenticate"


def test_severe_findings_are_in_the_log_of_every_start(caplog):
    caplog.set_level(logging.WARNING, "runnel.server")
    with Broker(settings={**AUTHORIZED, "super.users": "User:ANONYMOUS"}):
        pass
    logged = [record.getMessage() for record in caplog.records]
    assert [text for text in logged if "no listener authenticates clients" in text]
    assert [text for text in logged if "User:ANONYMOUS is a super user" in text]
    caplog.clear()
    with Broker():
        pass
    assert not caplog.records
