"""The gateway's process: beside a broker, restarted, and never left behind."""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from runnel.client.errors import BrokerError
from runnel.gateway import process as gateway_process
from runnel.gateway.alerts.evaluator import Evaluator, EvaluatorOptions
from runnel.model.errors import ErrorCode
from runnel.server.gateway_process import HttpOptions, HttpUnavailable, gateway_command, open_http
from runnel.testing import Broker, LocalGateway

WAIT_S = 30.0


def children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(each) for each in path.read_text().split()] if path.exists() else []


def eventually(check) -> None:
    deadline = time.monotonic() + WAIT_S
    while not check():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_closes_the_gateway(sent) -> None:
    gateway = LocalGateway("127.0.0.1:1", "PLAINTEXT")
    try:
        os.kill(gateway.pid, sent)
        # Ended by itself, after everything was closed; not by the signal.
        assert os.waitstatus_to_exitcode(os.waitpid(gateway.pid, 0)[1]) == 0
    finally:
        gateway.close()


@contextmanager
def serve(tmp_path: Path, *more: str, listen: str = "127.0.0.1:0", http: str = "127.0.0.1:0"):
    command = [sys.executable, "-m", "runnel.server.cli", "serve", "-d", str(tmp_path / "data")]
    process = subprocess.Popen(
        [*command, "--listen", listen, "--http", http, *more],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    lines: list[str] = []
    try:
        while not lines or not lines[-1].startswith("console: "):
            line = process.stdout.readline()
            assert line, lines
            lines.append(line.strip())
        yield process, lines[-1].removeprefix("console: ")
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(WAIT_S)
        process.stdout.close()


def status(url: str) -> int:
    with urllib.request.urlopen(url, timeout=WAIT_S) as response:
        return int(response.status)


def test_it_is_restarted_and_stops_with_the_broker(tmp_path: Path) -> None:
    with serve(tmp_path) as (process, url):
        [first] = children(process.pid)
        assert status(f"{url}livez") == 200
        os.kill(first, signal.SIGKILL)
        # The parent keeps the socket: a request waits for the next child.
        assert status(f"{url}livez") == 200
        eventually(lambda: children(process.pid) not in ([], [first]))
        [second] = children(process.pid)
        process.terminate()
        assert process.wait(WAIT_S) == 0
        assert not is_running(second)


def test_it_ends_with_a_broker_that_is_killed(tmp_path: Path) -> None:
    with serve(tmp_path, "--http-read-only") as (process, url):
        [child] = children(process.pid)
        assert status(f"{url}console/") == 200
        process.kill()
        process.wait(WAIT_S)
        eventually(lambda: not is_running(child))


def test_an_address_that_is_taken(caplog) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(HttpUnavailable, match="cannot listen"):
            open_http(HttpOptions(address))
    with pytest.raises(HttpUnavailable, match="neither"):
        open_http(HttpOptions("8080"))
    assert open_http(HttpOptions("off")) is None


def test_the_default_address_is_not_a_must(monkeypatch, caplog) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setattr("runnel.server.gateway_process.HTTP_DEFAULT", address)
        assert open_http(HttpOptions(None)) is None
    assert "no console" in caplog.text


def test_a_listener_with_tls_needs_client_properties(tmp_path: Path) -> None:
    where = ["--listen", "127.0.0.1:0"]

    def command(protocol: str, options: HttpOptions) -> list[str]:
        return gateway_command("b:1", where, protocol=protocol, options=options, log_level="info")

    with pytest.raises(HttpUnavailable, match="--http-config"):
        command("SASL_SSL", HttpOptions(None))
    assert "security.protocol=SASL_PLAINTEXT" in command("SASL_PLAINTEXT", HttpOptions(None))
    assert "--command-config" in command("SSL", HttpOptions(None, tmp_path / "client.properties"))


def test_broker_of_tests_has_one_on_request() -> None:
    with Broker(gateway=True) as broker:
        assert status(f"{broker.gateway_url}console/") == 200
        request = urllib.request.Request(broker.gateway_url, headers={"Accept": "application/json"})
        with urllib.request.urlopen(request, timeout=WAIT_S) as response:
            assert json.load(response) == {}
    with Broker() as broker, pytest.raises(RuntimeError):
        _ = broker.gateway_url


def test_alerts_are_evaluated_again_after_a_failure(monkeypatch, caplog) -> None:
    """As while a permission is missing, or because of a bug."""
    failures: list[Exception] = [BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "x"), ValueError("bug")]
    ran = asyncio.Event()

    async def evaluate(evaluator: Evaluator) -> None:
        if failures:
            raise failures.pop(0)
        ran.set()
        await evaluator._stop.wait()

    monkeypatch.setattr(gateway_process, "EVALUATE_AGAIN_S", 0.01)
    monkeypatch.setattr(gateway_process, "evaluate_alerts", evaluate)

    async def scenario() -> None:
        evaluating = gateway_process.Evaluating(EvaluatorOptions("127.0.0.1:1"))
        task = asyncio.create_task(evaluating.run())
        await asyncio.wait_for(ran.wait(), WAIT_S)
        evaluating.stop()
        await asyncio.wait_for(task, WAIT_S)

    asyncio.run(scenario())
    assert caplog.text.count("alerts are not evaluated") == 2


def test_the_command_passes_secrets_out_of_sight(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=a\nsasl.password=p\\\\w ü\n",
        "latin-1",
    )
    command = [
        sys.executable,
        "-m",
        "runnel.server.cli",
        "gateway",
        "-b",
        "127.0.0.1:1",
        "--http",
        "127.0.0.1:0",
    ]
    process = subprocess.Popen([*command, "--command-config", str(config)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("console on http://127.0.0.1:")
        arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert b"runnel.gateway" in arguments and b"p\\w" not in arguments
    finally:
        process.terminate()
        process.wait(WAIT_S)
        process.stdout.close()


def test_names_in_the_log_do_not_begin_lines() -> None:
    record = logging.LogRecord("a", logging.INFO, "", 1, "%s: done", ("anna\nadmin\x1b[2J\u2028ü",), None)
    assert gateway_process.LineFormatter("%(message)s").format(record) == r"anna\nadmin\x1b[2J\u2028ü: done"
