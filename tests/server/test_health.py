"""Health of a node: alive, ready, or why not."""

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runnel.broker.runtime.lifecycle import BrokerLifecycle
from runnel.server import admin, host_facts
from runnel.server.host_facts import HostFacts, read_facts
from runnel.server.layers import BadSettings
from runnel.server.node import Node
from runnel.server.ports import free_ports
from runnel.testing import Broker
from tests.observe.scraping import get, scrape, value


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs the superuser")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def settle(address: str | None, path: str, status: int) -> bytes:
    """Wait for a status of a page; returns its body."""
    deadline = time.monotonic() + 30
    while True:
        found, _, body = get(address, path)
        if found == status:
            return body
        assert time.monotonic() < deadline, (found, body)
        time.sleep(0.1)


def test_a_node_that_serves_is_alive_and_ready() -> None:
    with Broker(admin=True) as broker:
        assert get(broker.admin_address, "/livez")[::2] == (200, b"ok\n")
        assert get(broker.admin_address, "/readyz")[::2] == (200, b"ok\n")
        # Its topics have one replica: no node could ever be stopped if those counted.
        with broker.client() as client:
            client.send("orders", b"x")
        assert get(broker.admin_address, "/readyz?replicas")[::2] == (200, b"ok\n")
        assert get(broker.admin_address, "/")[0] == 404


@pytest.mark.root
def test_a_disk_that_cannot_be_written_is_not_ready(volume: Path) -> None:
    offline = "kafka_log_logmanager_offlinelogdirectorycount"
    with Broker(data_dir=volume / "data", admin=True) as broker:
        with broker.client() as client:
            client.send("orders", b"x")
        assert get(broker.admin_address, "/readyz")[0] == 200
        assert value(scrape(broker.admin_address), offline) == 0
        # The open files of the broker would keep the file system itself from becoming read-only.
        bound = volume / "data"
        subprocess.run(["mount", "--bind", str(bound), str(bound)], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", str(bound)], check=True)
            body = settle(broker.admin_address, "/readyz", 503)
            assert b"cannot be written: Read-only file system" in body
            assert get(broker.admin_address, "/livez")[0] == 200
            time.sleep(1.1)
            assert value(scrape(broker.admin_address), offline) == 1
        finally:
            subprocess.run(["umount", "-l", str(bound)], check=True)
        settle(broker.admin_address, "/readyz", 200)


@pytest.mark.root
def test_a_full_disk_is_not_ready(volume: Path) -> None:
    with Broker(data_dir=volume / "data", admin=True) as broker:
        assert get(broker.admin_address, "/readyz")[0] == 200
        filler = volume / "filler"
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(bytes(1 << 20))
        body = settle(broker.admin_address, "/readyz", 503)
        assert b"No space left on device" in body
        filler.unlink()
        settle(broker.admin_address, "/readyz", 200)


def test_a_disk_that_does_not_respond_is_not_ready(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host_facts, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(host_facts, "SILENCE_SECONDS_MAX", 0.2)
    hangs = threading.Event()

    def hang(data_dir: str) -> host_facts.Facts:
        hangs.wait(30)
        return read_facts(data_dir)

    async def scenario() -> None:
        facts = HostFacts(str(tmp_path))

        def failure() -> str | None:
            return facts.disk_failure

        await facts.refresh()
        assert failure() is None
        monkeypatch.setattr(host_facts, "MAX_AGE_SECONDS", 0.0)
        monkeypatch.setattr(host_facts, "read_facts", hang)
        began = time.monotonic()
        while failure() is None:
            await facts.refresh()
            assert time.monotonic() < began + 20
        assert "has not responded" in str(failure())
        assert facts.facts.disk_total_bytes > 0, "the last facts remain"
        hangs.set()
        while failure() is not None:
            await asyncio.sleep(0.01)

    asyncio.run(scenario())


def test_the_probe_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_facts(str(tmp_path)).disk_failure is None
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    assert read_facts(str(tmp_path)).disk_failure is None
    assert list(tmp_path.iterdir()) == []
    assert "No such file" in str(read_facts(str(tmp_path / "missing")).disk_failure)


def test_a_node_that_starts_or_stops_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports("127.0.0.1", 1)
    address = f"127.0.0.1:{port}"
    static = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path),
        "admin.listeners": address,
    }
    seen: list[tuple[str, int, bytes]] = []

    async def note(when: str) -> None:
        status, _, body = await asyncio.to_thread(get, address, "/readyz")
        assert (await asyncio.to_thread(get, address, "/livez"))[0] == 200
        # What there is of metrics can be read at any time.
        assert (await asyncio.to_thread(get, address, "/metrics"))[0] == 200
        seen.append((when, status, body))

    register, close = BrokerLifecycle.register, BrokerLifecycle.close

    async def noted_register(self: BrokerLifecycle) -> None:
        await note("start")
        await register(self)

    async def noted_close(self: BrokerLifecycle) -> None:
        if not any(when == "stop" for when, _, _ in seen):
            await note("stop")
        await close(self)

    monkeypatch.setattr(BrokerLifecycle, "register", noted_register)
    monkeypatch.setattr(BrokerLifecycle, "close", noted_close)

    async def scenario() -> None:
        async with Node(static) as node:
            assert node.admin_address == address
            await note("run")

    asyncio.run(scenario())
    assert seen == [
        ("start", 503, b"this node is starting\n"),
        ("run", 200, b"ok\n"),
        ("stop", 503, b"this node is stopping\n"),
    ]
    with pytest.raises(ConnectionRefusedError):
        get(address, "/livez")


def test_an_event_loop_that_paused_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(admin=True) as broker:
        monkeypatch.setattr(admin, "LIVE_SECONDS_MAX", -60.0)
        status, _, body = get(broker.admin_address, "/livez")
        assert status == 503
        assert b"the event loop paused" in body


def test_an_explicit_address_in_use_prevents_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        listener = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        static = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
        with pytest.raises(BadSettings, match=f"admin.listeners: cannot bind .* 127.0.0.1:{port}"):
            await Node({**static, "admin.listeners": f"127.0.0.1:{port}"}).start()
        listener.close()

    asyncio.run(scenario())


def test_the_default_address_in_use_leaves_it_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        listener = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        monkeypatch.setattr(admin, "parse_host_port", lambda text: ("127.0.0.1", port))
        static = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
        async with Node(static) as node:
            assert node.admin_address is None
        listener.close()

    asyncio.run(scenario())
    assert "there are no metrics of this node" in caplog.text


@pytest.mark.parametrize("value", ["9644", "host", "host:x", "host:70000", "http://host:1", "off,host:1"])
def test_malformed_addresses_are_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"admin\.listeners"):
        Node({"admin.listeners": value})


def test_a_controller_without_a_broker_has_metrics_and_health(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "MAX_AGE_SECONDS", 0.0)
    (port,) = free_ports("127.0.0.1", 1)
    static = {
        "process.roles": "controller",
        "node.id": "7",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"7@127.0.0.1:{port}",
        "log.dirs": str(tmp_path),
        "admin.listeners": "127.0.0.1:0",
    }

    async def scenario() -> None:
        async with Node(static) as node:
            assert (await asyncio.to_thread(get, node.admin_address, "/readyz?replicas"))[::2] == (
                200,
                b"ok\n",
            )
            # It decides about metadata as soon as it has applied what there is.
            async with asyncio.timeout(20):
                samples = await asyncio.to_thread(scrape, node.admin_address)
                while not value(samples, "kafka_controller_kafkacontroller_activecontrollercount"):
                    samples = await asyncio.to_thread(scrape, node.admin_address)
        assert value(samples, "kafka_brokers") == 0
        assert value(samples, "kafka_server_replicamanager_partitioncount") == 0
        assert value(samples, "kafka_server_raftmetrics_current_leader") == 7
        assert value(samples, "runnel_collector_failures_total") == 0

    asyncio.run(scenario())
