"""`runnel user`: users are added, listed and removed; passwords are not arguments."""

from runnel.messages.metadata import MetadataRequest
from runnel.security.sasl_client import Credentials
from tests.security.sasl_node import Caller, sasl_node

CLUSTER = "MvDxzVmcRsaTz33bUuRU6A"


def test_a_user_is_added_listed_and_removed(run, name, tmp_path, monkeypatch) -> None:
    password = tmp_path / "password"
    password.write_text("from a file\n")
    run.ok("user", "add", name, "--password-file", str(password))
    monkeypatch.setenv("RUNNEL_USER_PASSWORD", "from the environment")
    run.ok("user", "add", name, "--mechanism", "SCRAM-SHA-256", "--iterations", "8192")
    users = {user["user"]: user["mechanisms"] for user in run.ok("user", "list", "--json").json}
    assert users[name] == {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 4096}
    assert name in run.ok("user", "list").out
    run.ok("user", "remove", name, "--mechanism", "SCRAM-SHA-256", "--yes")
    run.ok("user", "remove", name, "--yes")
    assert name not in run.ok("user", "list").out
    run.fails("user", "remove", name, "--yes")


def test_a_password_is_required(run, name, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("RUNNEL_USER_PASSWORD", raising=False)
    assert "no password" in run.fails("user", "add", name).err
    monkeypatch.setenv("RUNNEL_USER_PASSWORD", "")
    assert "empty" in run.fails("user", "add", name).err
    assert "cannot read" in run.fails("user", "add", name, "--password-file", str(tmp_path / "none")).err


def test_an_unknown_mechanism_is_refused(run, name) -> None:
    assert run("user", "add", name, "--mechanism", "PLAIN").code == 2


def test_the_first_user_is_part_of_the_format(run, tmp_path) -> None:
    folder = tmp_path / "data"
    run.ok(
        "storage", "format", "--cluster-id", CLUSTER, "--set", f"log.dirs={folder}",
        "--add-scram", "SCRAM-SHA-256=[name=admin,password=admin-secret]",
        "--add-scram", "SCRAM-SHA-512=[name=admin,password=admin-secret]",
    )  # fmt: skip
    with sasl_node(str(folder)) as node:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            with Caller(node.ports["SASL_PLAINTEXT"]) as caller:
                assert caller.log_in(mechanism, Credentials("admin", "admin-secret")).error_code == 0
                assert caller.call(MetadataRequest()).brokers


def test_an_invalid_user_of_the_format_is_not_repeated(run, tmp_path) -> None:
    outcome = run(
        "storage", "format", "--cluster-id", CLUSTER, "--set", f"log.dirs={tmp_path / 'data'}",
        "--add-scram", "SCRAM-SHA-256=[name=admin,password=admin-secret,iterations=1]",
    )  # fmt: skip
    assert outcome.code == 2
    assert "admin-secret" not in outcome.err
    assert not (tmp_path / "data").exists()
