"""Client properties on the command line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from runnel.server.cli.app import app
from tests.server.cli import CommandLine
from tests.server.test_cli_help import commands
from tests.tls_proxy import TlsProxy, broker_behind
from tools.certificates import KEY_PASSWORD, CaFolder, KeyFiles

CONNECTED = {
    path: command
    for path, command in commands(typer.main.get_command(app))
    if any("--bootstrap-server" in parameter.opts for parameter in command.params)
}


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> CaFolder:
    return CaFolder(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def client(ca: CaFolder) -> KeyFiles:
    return ca.issue("client")


@pytest.fixture(scope="module")
def tls_address(ca: CaFolder) -> Iterator[str]:
    proxy = TlsProxy(ca.issue("server", "127.0.0.1"), ca, asks_for_certificates=True)
    with broker_behind(proxy):
        yield f"127.0.0.1:{proxy.port}"


@pytest.fixture
def run(tls_address: str, capfd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(tls_address, capfd, tmp_path, monkeypatch)


@pytest.fixture
def config(ca: CaFolder, client: KeyFiles, tmp_path: Path) -> str:
    """A file with the key's password in the environment."""
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SSL\n"
        f"ssl.ca.location={ca.certificate}\n"
        f"ssl.certificate.location={client.certificate}\n"
        f"ssl.key.location={client.encrypted_key}\n"
        "ssl.key.password=${env:RUNNEL_TEST_PASSWORD}\n"
    )
    return str(path)


@pytest.mark.parametrize("path", CONNECTED, ids=" ".join)
def test_every_command_that_connects_takes_client_properties(path):
    options = {option for parameter in CONNECTED[path].params for option in parameter.opts}
    assert {"--command-config", "--command-property", "-X"} <= options


def test_there_are_commands_that_connect():
    assert {("topic", "list"), ("produce",), ("bench",), ("cluster", "status")} <= CONNECTED.keys()
    assert ("pipeline", "run", "archive") in CONNECTED and ("serve",) not in CONNECTED


def test_a_properties_file(run, config, monkeypatch):
    monkeypatch.setenv("RUNNEL_TEST_PASSWORD", KEY_PASSWORD)
    with_config = ("--command-config", config)
    run.ok("topic", "create", "orders", *with_config)
    run.ok("produce", "orders", *with_config, stdin="tea\ncoffee\n")
    assert run.ok("consume", "orders", *with_config).lines == ["tea", "coffee"]
    assert run.ok("cluster", "status", "--json", *with_config).json
    run.ok("bench", "-n", "2000", "--latency-seconds", "0", "--json", *with_config)


def test_the_environment_names_the_file(run, config, monkeypatch):
    monkeypatch.setenv("RUNNEL_TEST_PASSWORD", KEY_PASSWORD)
    monkeypatch.setenv("RUNNEL_COMMAND_CONFIG", config)
    run.ok("group", "list")
    # One command does not leave its properties to the next.
    monkeypatch.delenv("RUNNEL_COMMAND_CONFIG")
    assert "security.protocol" in run.fails("group", "list").err


def test_single_properties_override_the_file(run, config, client):
    file_and_more = ("--command-config", config, "-X", f"ssl.key.location={client.key}")
    run.ok("topic", "list", *file_and_more)
    run.ok(
        "topic", "list", "--command-config", config, "--command-property", f"ssl.key.password={KEY_PASSWORD}"
    )


@pytest.mark.parametrize(
    "given, message",
    [
        ((), "RUNNEL_TEST_PASSWORD is not set"),
        (("-X", "ssl.key.password=hunter2"), "ssl.key.password is wrong"),
        (("-X", "ssl.key.pasword=hunter2"), "did you mean ssl.key.password"),
        (("-X", "hunter2"), "name=value"),
        (("-X", "ssl.ca.location=/missing"), "cannot read /missing"),
        (("--command-config", "/missing"), "cannot read /missing"),
    ],
)
def test_errors_are_one_line_without_secrets(run, config, given, message):
    said = run.fails("topic", "list", "--command-config", config, *given).err
    assert message in said and said.count("\n") == 1
    assert "hunter2" not in said and KEY_PASSWORD not in said
