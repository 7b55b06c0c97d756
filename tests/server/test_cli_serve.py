"""`runnel serve` as a process: listener, settings, signals."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runnel.client.sync import SyncClient
from runnel.testing import Broker

COMMAND = [sys.executable, "-m", "runnel.server.cli"]


def environment(**more: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("RUNNEL_")}
    # Default ports may be taken by other tests, or for a moment by the last one.
    return {**plain, "RUNNEL_ADMIN": "off", "RUNNEL_HTTP": "off", **more}


@contextmanager
def serving(
    directory: Path, *arguments: str, **variables: str
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A broker process and its address; its output goes to a file."""
    output = directory / "output"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            [*COMMAND, "serve", *arguments],
            cwd=directory,
            env=environment(**variables),
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    with process:
        try:
            while not output.read_text().endswith("press Ctrl-C to stop\n"):
                assert process.poll() is None, output.read_text()
                time.sleep(0.01)
            yield output.read_text().split()[2], process
        finally:
            process.kill()


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_start_output_and_clean_shutdown(tmp_path, stop):
    with serving(tmp_path, "--data-dir", "here", "--listen", "127.0.0.1:0") as (address, process):
        with SyncClient(address) as client:
            client.send("orders", b"a cup of tea")
        process.send_signal(stop)
        assert process.wait(timeout=30) == 0
    assert (tmp_path / "output").read_text().splitlines() == [
        f"listening on {address}",
        f"data directory: {tmp_path / 'here'}",
        "press Ctrl-C to stop",
        "stopped",
    ]
    with (
        serving(tmp_path, "-d", "here", "-l", "127.0.0.1:0") as (address, _),
        SyncClient(address) as client,
    ):
        assert [message.value for message in client.read("orders")] == [b"a cup of tea"]


def test_shutdown_with_a_connected_client(tmp_path):
    with serving(tmp_path, "--listen", "127.0.0.1:0") as (address, process), SyncClient(address) as client:
        client.send("orders", b"x")
        process.terminate()
        assert process.wait(timeout=30) == 0
    assert (tmp_path / "runnel-data").is_dir()


def test_precedence_of_settings(tmp_path):
    (tmp_path / "broker.toml").write_text("num.partitions = 2\n[log.retention]\nhours = 5\n")
    with (
        serving(
            tmp_path,
            *("--config", "broker.toml", "--node-id", "7", "--set", "num.partitions=4"),
            RUNNEL_SET_NUM_PARTITIONS="3",
            RUNNEL_LISTEN="127.0.0.1:0",
            RUNNEL_DATA_DIR="elsewhere",
        ) as (address, _),
        SyncClient(address) as client,
    ):
        client.send("orders", b"x")
        assert len(client.run(lambda cluster: cluster.topic("orders")).partitions) == 4
        assert client.run(lambda cluster: cluster.refresh([])).brokers[0].node_id == 7
    assert (tmp_path / "elsewhere").is_dir()


def test_start_failures_are_one_line(run, runnel_session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def refused(*arguments: str, code: int = 1) -> str:
        outcome = run("serve", "--data-dir", "data", "--listen", "127.0.0.1:0", *arguments)
        assert (outcome.code, outcome.out) == (code, "")
        assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1, outcome.err
        return str(outcome.err)

    (tmp_path / "file").write_text("")
    address = runnel_session.bootstrap_servers
    for arguments, expected in [
        (["--data-dir", runnel_session.data_dir], "another broker is using the data directory"),
        (["--listen", address], f"cannot bind to PLAINTEXT://{address}: Address already in use"),
        (["--data-dir", "file"], "cannot use the data directory"),
        (["--set", "no.such.setting=1"], "no.such.setting"),
        (["--set", "log.retention.hours=soon"], "log.retention.hours"),
        (["--config", "missing.toml"], "cannot read the settings file"),
        (["--listen", "PLAINTEXT://here"], "is not a listener address"),
    ]:
        assert expected in refused(*arguments)
    for arguments, expected in [
        (["--set", "nonsense"], "is not of the form key=value"),
        (["--listen", "here"], "'here' is not HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], "'127.0.0.1:99999' is not HOST:PORT"),
    ]:
        assert expected in refused(*arguments, code=2)


@pytest.mark.parametrize("source", ["file", "environment", "flag"])
def test_a_setting_that_promises_protection_stops_the_start(tmp_path, source):
    arguments, variables = [], {}
    if source == "file":
        (tmp_path / "broker.toml").write_text('ssl.keystore.location = "/etc/kafka/broker.p12"\n')
        arguments = ["--config", "broker.toml"]
    elif source == "environment":
        variables = {"RUNNEL_SET_SSL_KEYSTORE_LOCATION": "/etc/kafka/broker.p12"}
    else:
        arguments = ["--set", "ssl.keystore.location=/etc/kafka/broker.p12"]
    outcome = subprocess.run(
        [*COMMAND, "serve", "--data-dir", "data", "--listen", "127.0.0.1:0", *arguments],
        cwd=tmp_path,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (outcome.returncode, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith("error: ") and outcome.stderr.count("\n") == 1
    assert "ssl.keystore.location is set, but no listener to which it applies uses TLS" in outcome.stderr
    assert not (tmp_path / "data").exists()


def test_data_directory_of_another_node_is_rejected(run, tmp_path):
    with Broker(data_dir=tmp_path / "data"):
        pass
    outcome = run("serve", "-d", str(tmp_path / "data"), "-l", "127.0.0.1:0", "--node-id", "7")
    assert (outcome.code, outcome.out) == (1, "")
    assert "belongs to node 1, and this is node 7" in outcome.err and outcome.err.count("\n") == 1


def test_descriptor_limit_is_raised_to_the_hard_limit(tmp_path):
    with serving(tmp_path, "--listen", "127.0.0.1:0") as (_, process):
        limits = Path(f"/proc/{process.pid}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
    soft, hard = line.split()[3:5]
    assert soft == hard
