"""TLS of a node: what prevents its start, the rotation of certificates while it runs, several listeners."""

import asyncio
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from runnel.controller.settings import Settings
from runnel.server import node_tls
from runnel.server.layers import BadSettings
from runnel.server.node import Node
from runnel.server.node_tls import NodeTls
from runnel.server.process import READY_PREFIX
from runnel.server.roles import roles_of
from runnel.testing import Broker
from tools.certificates import CertificateAuthority, Issued, distinguished_name

CA = CertificateAuthority()
NODE = CA.issue("broker")


class Files:
    """The key material of a broker and of its clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keystore = NODE.write(folder / "node.pem")
        self.truststore = CA.write(folder / "ca.pem")

    @property
    def settings(self) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.keystore,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.truststore,
        }

    def replace(self, issued: Issued) -> None:
        """Replace the key store in one step."""
        issued.write(self.folder / "new.pem")
        os.replace(self.folder / "new.pem", self.keystore)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def served(port: int) -> bytes:
    """The certificate that a listener presents."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=CA.pem())
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def start_of(settings: dict[str, str], folder: Path) -> None:
    async def scenario() -> None:
        async with Node({"listeners": "SSL://127.0.0.1:0", "log.dirs": str(folder / "data"), **settings}):
            pass

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"ssl.keystore.location": ""}, r"TLS of the listener SSL: ssl\.keystore\.location is not set"),
        ({"ssl.keystore.location": "/nowhere"}, r"ssl\.keystore\.location: cannot read /nowhere"),
        ({"ssl.truststore.type": "JKS"}, r"ssl\.truststore\.location is a PEM file"),
        (
            {"ssl.truststore.location": "", "ssl.client.auth": "required"},
            r"but ssl\.client\.auth is required",
        ),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, r"ssl\.cipher\.suites"),
        ({"ssl.principal.mapping.rules": "RULE:("}, r"ssl\.principal\.mapping\.rules of the listener SSL"),
    ],
)
def test_what_prevents_the_start(files: Files, changes: dict[str, str], complaint: str) -> None:
    with pytest.raises(BadSettings, match=complaint):
        start_of({**files.settings, **changes}, files.folder)


def test_an_expired_certificate_prevents_the_start(files: Files) -> None:
    files.replace(CA.issue("broker", begins_days=-9, ends_days=-1))
    with pytest.raises(BadSettings, match=r"ssl\.keystore\.location has a certificate that has expired"):
        start_of(files.settings, files.folder)


@pytest.fixture
def quick_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_tls, "CHECK_SECONDS", 0.1)


@pytest.fixture
def broker(files: Files) -> Iterator[Broker]:
    with Broker(files.settings, security_protocol="SSL") as broker:
        yield broker


def test_a_new_file_is_used(quick_checks, files: Files, broker: Broker, caplog) -> None:
    assert served(broker.port) == NODE.der()
    renewed = CA.issue("broker")
    files.replace(renewed)
    until(lambda: served(broker.port) == renewed.der())
    (files.folder / "node.pem").write_bytes(b"damaged")
    until(lambda: "was not changed: ssl.keystore.location has no certificate" in caplog.text)
    files.replace(CA.issue("another"))
    until(lambda: "which needs ssl.allow.dn.changes" in caplog.text)
    files.replace(CA.issue("broker", ("localhost",)))
    until(lambda: "which needs ssl.allow.san.changes" in caplog.text)
    assert served(broker.port) == renewed.der()
    files.replace(NODE)
    until(lambda: served(broker.port) == NODE.der())


def admin_of(files: Files, bootstrap: str) -> AdminClient:
    # Without its log: it may live longer than the broker, and log to the standard error of a later test.
    tls = {"security.protocol": "SSL", "ssl.ca.location": files.truststore, "log_level": 0}
    return AdminClient({"bootstrap.servers": bootstrap, **tls})


def alter(admin: AdminClient, configs: dict[str, str | None]) -> None:
    changes = [
        ConfigEntry(
            config,
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for config, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=changes)
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(20)


def test_a_dynamic_config_is_validated_then_used(files: Files, broker: Broker, caplog) -> None:
    setting = "listener.name.ssl.ssl.keystore.location"
    admin = admin_of(files, broker.bootstrap_servers)
    (files.folder / "damaged.pem").write_bytes(b"damaged")
    for path in ("/nowhere", str(files.folder / "damaged.pem")):
        with pytest.raises(KafkaException, match="TLS of the listener SSL: ") as refused:
            alter(admin, {setting: path})
        assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert served(broker.port) == NODE.der()
    renewed = CA.issue("broker")
    path = renewed.write(files.folder / "renewed.pem")
    alter(admin, {setting: path})
    until(lambda: served(broker.port) == renewed.der())
    broker.restart()
    assert served(broker.port) == renewed.der()
    # What cannot be read any more does not prevent a start.
    os.remove(path)
    broker.restart()
    assert served(broker.port) == NODE.der()
    assert "TLS of the listener SSL was not changed: ssl.keystore.location: cannot read" in caplog.text
    alter(admin_of(files, broker.bootstrap_servers), {setting: None})


def test_a_validation_resolves_what_it_needs_in_a_thread(files: Files, monkeypatch) -> None:
    resolved: list[tuple[list[str], bool]] = []
    changed = Settings.changed

    def recorded(settings: Settings, changes: Mapping[str, str | None]) -> Settings:
        resolved.append((list(changes), threading.current_thread() is threading.main_thread()))
        return changed(settings, changes)

    monkeypatch.setattr(Settings, "changed", recorded)
    setting = "listener.name.ssl.ssl.keystore.location"
    others = {f"listener.name.other{number}.ssl.keystore.location": "/a" for number in range(100)}
    others |= {f"listener.name.ssl.m{number}.sasl.jaas.config": "" for number in range(100)}

    async def scenario() -> str | None:
        settings = Settings(
            {"listeners": "SSL://127.0.0.1:0", "log.dirs": str(files.folder / "data"), **files.settings}
        )
        tls = NodeTls(roles_of(settings), settings)
        tls.load()
        return await tls.refusal({**others, setting: "/nowhere"})

    assert "cannot read /nowhere" in (asyncio.run(scenario()) or "")
    assert resolved == [([setting], False)]


def test_secrets_of_dynamic_configs_are_not_described(files: Files, broker: Broker) -> None:
    admin = admin_of(files, broker.bootstrap_servers)
    renewed = CA.issue("broker")
    prefix = "listener.name.ssl.ssl.keystore"
    alter(
        admin,
        {
            f"{prefix}.location": "",
            f"{prefix}.key": renewed.key_pem(b"hidden").decode(),
            f"{prefix}.certificate.chain": renewed.chain_pem().decode(),
            "listener.name.ssl.ssl.key.password": "hidden",
        },
    )
    until(lambda: served(broker.port) == renewed.der())
    (future,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    described = future.result(20)
    for config in (f"{prefix}.key", f"{prefix}.certificate.chain", "listener.name.ssl.ssl.key.password"):
        assert described[config].value is None
        assert described[config].is_sensitive


def test_sighup_reads_certificates_again(files: Files) -> None:
    settings = [f"--set={setting}={value}" for setting, value in files.settings.items()]
    command = [sys.executable, "-m", "runnel.server.cli", "serve", "--listen", "SSL://127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--data-dir", str(files.folder / "data"), *settings], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().removeprefix(READY_PREFIX).rpartition(":")[2])
        assert served(port) == NODE.der()
        status = os.stat(files.keystore)
        renewed = CA.issue("broker")
        content = renewed.key_pem() + renewed.chain_pem()
        with open(files.keystore, "r+b") as file:
            file.write(content.ljust(status.st_size, b"\n"))
        # As if nothing had changed: only the signal reveals it.
        os.utime(files.keystore, ns=(status.st_atime_ns, status.st_mtime_ns))
        process.send_signal(signal.SIGHUP)
        until(lambda: served(port) == renewed.der())
    finally:
        process.terminate()
        assert process.wait(30) == 0
        if process.stdout is not None:
            process.stdout.close()


def test_listeners_with_different_protocols_show_their_own_addresses(files: Files) -> None:
    inside = CA.issue("inside").write(files.folder / "inside.pem")
    static = {
        **files.settings,
        "listeners": "OUTSIDE://127.0.0.1:0,INSIDE://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "OUTSIDE:SSL,INSIDE:SSL,PLAINTEXT:PLAINTEXT",
        "listener.name.inside.ssl.keystore.location": inside,
        "log.dirs": str(files.folder / "data"),
    }

    async def scenario() -> None:
        async with Node(static) as node:
            ports = node.ports
            assert await asyncio.to_thread(served, ports["OUTSIDE"]) == NODE.der()
            assert distinguished_name("inside").public_bytes() in await asyncio.to_thread(
                served, ports["INSIDE"]
            )
            for listener, port in ports.items():
                config = {"bootstrap.servers": f"127.0.0.1:{port}"}
                if listener != "PLAINTEXT":
                    config |= {"security.protocol": "SSL", "ssl.ca.location": files.truststore}
                client = AdminClient({**config, "log_level": 0})
                metadata = await asyncio.to_thread(client.list_topics, timeout=20)
                assert [broker.port for broker in metadata.brokers.values()] == [port]

    asyncio.run(scenario())
