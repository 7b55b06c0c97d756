"""Nodes as child processes: started, restarted, and ended with their supervisor."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from runnel.client.connection import Connection
from runnel.client.errors import ClientError
from runnel.server.ports import free_ports
from runnel.server.supervisor import NodeFailed, Supervisor
from tests.server.test_tls import CA, NODE, Files, served

PROGRAM = """
import asyncio, json, sys
from runnel.server.supervisor import Supervisor

async def main():
    supervisor = Supervisor(json.loads(sys.argv[1]))
    await supervisor.start()
    print(supervisor.children[0].process.pid, flush=True)
    await asyncio.sleep(100)

asyncio.run(main())
"""


def nodes(folder: Path, count: int) -> list[dict[str, str]]:
    """Independent nodes."""
    ports = free_ports("127.0.0.1", count)
    return [
        {
            "node.id": str(number),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(folder / str(number)),
        }
        for number, port in enumerate(ports, 1)
    ]


async def answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    connection = await Connection.open(host, int(port), timeout_s=20)
    await connection.close()
    return True


def test_secrets_are_not_arguments_and_certificates_are_read_again(tmp_path: Path) -> None:
    files, secret = Files(tmp_path), '"hidden" \\ ä'
    NODE.write(tmp_path / "node.pem", secret.encode())
    (node,) = nodes(tmp_path, 1)
    port = int(node["listeners"].rpartition(":")[2])
    static = {**node, **files.settings, "listeners": f"SSL://127.0.0.1:{port}", "ssl.key.password": secret}

    async def scenario() -> None:
        supervisor = Supervisor([static])
        async with asyncio.timeout(100):
            await supervisor.start()
            assert await asyncio.to_thread(served, port) == NODE.der()
            process = supervisor.children[0].process
            assert process is not None
            arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            assert b"ssl.keystore.location" in arguments
            assert b"hidden" not in arguments
            renewed = CA.issue("broker")
            renewed.write(tmp_path / "node.pem", secret.encode())
            supervisor.reload()
            while await asyncio.to_thread(served, port) != renewed.der():
                await asyncio.sleep(0.05)
            await supervisor.stop()

    asyncio.run(scenario())


def test_a_node_that_dies_is_restarted_and_all_are_stopped(tmp_path: Path) -> None:
    async def scenario() -> None:
        reports: list[str] = []
        supervisor = Supervisor(nodes(tmp_path, 2), report=reports.append)
        async with asyncio.timeout(100):
            await supervisor.start()
            first, second = supervisor.children
            assert await answers(first.address) and await answers(second.address)
            assert first.process is not None and second.process is not None
            killed, survivor = first.process, second.process
            killed.kill()
            while "node 1 is ready again" not in reports:
                await asyncio.sleep(0.05)
            assert reports[0] == "node 1 ended (SIGKILL), restarting it in 0.1 s"
            assert await answers(first.address)
            restarted = first.process
            await supervisor.stop()
        assert (restarted.returncode, survivor.returncode) == (0, 0)
        assert second.process is None

    asyncio.run(scenario())


def test_a_node_that_cannot_start_stops_all(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        good, bad = nodes(tmp_path, 2)
        bad["num.partitions"] = "none"
        supervisor = Supervisor([good, bad])
        with pytest.raises(NodeFailed, match=r"node 2 did not start \(exit status 1\)"):
            await supervisor.start()
        assert supervisor.children[0].process is None

    asyncio.run(scenario())
    assert "num.partitions" in capfd.readouterr().err


def test_nodes_end_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", PROGRAM, json.dumps(nodes(tmp_path, 1))]
    supervisor = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    node = int(supervisor.stdout.readline())
    os.kill(node, 0)
    supervisor.send_signal(signal.SIGKILL)
    supervisor.wait()
    asyncio.run(_until_gone(node))
    supervisor.stdout.close()
    assert (tmp_path / "1" / "clean-shutdown-manifest").exists()


def test_a_node_whose_output_is_closed_stops_cleanly(tmp_path: Path) -> None:
    """As after its supervisor was killed while it reports that it is ready."""
    (node,) = nodes(tmp_path, 1)
    options = [word for key, value in node.items() for word in ("--set", f"{key}={value}")]
    reading, writing = os.pipe()
    os.close(reading)
    serving = subprocess.Popen([sys.executable, "-m", "runnel.server.cli", "serve", *options], stdout=writing)
    os.close(writing)
    address = node["listeners"].removeprefix("PLAINTEXT://")

    async def stop_when_ready() -> None:
        async with asyncio.timeout(60):
            while serving.poll() is None:
                with suppress(ClientError):
                    await answers(address)
                    break
                await asyncio.sleep(0.05)
        serving.send_signal(signal.SIGTERM)

    try:
        asyncio.run(stop_when_ready())
        serving.wait(60)
    finally:
        serving.kill()
        serving.wait()
    assert (tmp_path / "1" / "clean-shutdown-manifest").exists()


async def _until_gone(process_id: int) -> None:
    command = Path(f"/proc/{process_id}/cmdline")
    async with asyncio.timeout(60):
        # That of a zombie is empty.
        while command.exists() and command.read_bytes():
            await asyncio.sleep(0.05)
