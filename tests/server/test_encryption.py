"""Encryption at rest of whole nodes: where master keys come from, what is refused, rotation, clusters."""

import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaStorageError

from runnel.client.admin import Admin
from runnel.client.sync import SyncClient
from runnel.model.configs import ResourceType
from runnel.ports.disk import BadDirectory
from runnel.server.layers import BadSettings
from runnel.server.local_nodes import cluster_settings
from runnel.server.master_keys import parse_master_keys
from runnel.testing import BrokerNode
from tests.server.cli import CommandLine

KEYS = [bytes([number]) * 32 for number in (1, 2)]
SECRET = b"a secret value"


def key_file(folder: Path, *keys: bytes, name: str = "master.key", mode: int = 0o600) -> str:
    path = folder / name
    path.write_text("# master keys\n\n" + "".join(f"{key.hex()}\n" for key in keys))
    path.chmod(mode)
    return str(path)


def settings(folder: Path, **more: str) -> dict[str, str]:
    return {
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(folder / "data"),
        "group.initial.rebalance.delay.ms": "0",
        **more,
    }


@pytest.fixture
def encrypted(tmp_path: Path) -> dict[str, str]:
    """Settings of a node that encrypts everything."""
    return settings(
        tmp_path,
        **{
            "log.encryption.enable": "true",
            "encryption.master.key.file": key_file(tmp_path, KEYS[0]),
            "encryption.master.key.refresh.ms": "50",
        },
    )


class Running:
    """A node that runs, and a client."""

    def __init__(self, static: dict[str, str]) -> None:
        self.node = BrokerNode(static)

    def __enter__(self) -> SyncClient:
        self.bootstrap = f"127.0.0.1:{self.node.start()}"
        self.client = SyncClient(self.bootstrap)
        return self.client

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.node.stop()


def stored_files(folder: str) -> Iterator[bytes]:
    for path in Path(folder).rglob("*"):
        if path.is_file():
            yield path.read_bytes()


def has_secret(folder: str) -> bool:
    return any(SECRET in data for data in stored_files(folder))


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def values(client: SyncClient, topic: str = "orders") -> list[bytes | None]:
    return [message.value for message in client.read(topic)]


def test_records_are_encrypted_and_read_after_a_restart(encrypted: dict[str, str]) -> None:
    large = [SECRET * 10_000 + b"%d" % number for number in range(20)]
    with Running(encrypted) as client:
        client.send("orders", SECRET)
        client.send_all("orders", [(b"key", value) for value in large])
        assert sorted(filter(None, values(client))) == sorted([SECRET, *large])
        assert client.read("orders", since_ms=0)[0].offset == 0
    assert not has_secret(encrypted["log.dirs"])
    with Running(encrypted) as client:
        assert sorted(filter(None, values(client))) == sorted([SECRET, *large])


def test_one_topic_is_encrypted_and_another_is_not(encrypted: dict[str, str]) -> None:
    del encrypted["log.encryption.enable"]
    with Running(encrypted) as client:
        client.create_topic("secret", settings={"encryption.enable": "true"})
        client.send("secret", SECRET)
        client.send("plain", b"for all to see")
    data = Path(encrypted["log.dirs"])
    assert not has_secret(encrypted["log.dirs"])
    assert b"for all to see" in (data / "plain-0" / f"{0:020d}.log").read_bytes()
    assert not list((data / "plain-0").glob("*.key"))
    assert not list((data / "__cluster_metadata-0").glob("*.key"))


def test_a_node_without_the_key_does_not_start(encrypted: dict[str, str], tmp_path: Path) -> None:
    with Running(encrypted) as client:
        client.send("orders", SECRET)
    plain = settings(tmp_path)
    with pytest.raises(BadDirectory, match=r"set encryption\.master\.key\.file"):
        BrokerNode(plain).start()
    other = {**encrypted, "encryption.master.key.file": key_file(tmp_path, KEYS[1], name="other")}
    with pytest.raises(BadDirectory, match="which is not given"):
        BrokerNode(other).start()
    with Running(encrypted) as client:
        assert values(client) == [SECRET]


def test_a_topic_that_cannot_be_encrypted_takes_no_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running = Running(settings(tmp_path))
    with running as client:
        client.create_topic("secret", settings={"encryption.enable": "true"})
        producer = KafkaProducer(
            bootstrap_servers=running.bootstrap, acks=1, retries=0, enable_idempotence=False
        )
        with pytest.raises(KafkaStorageError):
            producer.send("secret", SECRET).get(60)
        producer.close()
        client.send("plain", SECRET)
    assert "this node has no master key" in caplog.text
    assert not has_secret(str(tmp_path / "data" / "secret-0"))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"log.encryption.enable": "true"}, "without a master key"),
        ({"encryption.master.key.file": "missing"}, "cannot read missing"),
        ({"encryption.master.key.command": "false"}, "failed with status 1"),
        ({"encryption.master.key.command": "no-such-command"}, "could not be run"),
        ({"encryption.master.key.command": "echo"}, "has no master key"),
        ({"encryption.master.key.command": "echo abc"}, "32 bytes in hexadecimal or Base64"),
        ({"encryption.master.key.command": "echo", "encryption.master.key.file": "x"}, "are both set"),
    ],
)
def test_bad_settings(tmp_path: Path, changes: dict[str, str], complaint: str) -> None:
    with pytest.raises(BadSettings, match=complaint):
        BrokerNode(settings(tmp_path, **changes)).start()


def test_key_formats() -> None:
    from base64 import b64encode

    text = f"# comment\n\n{KEYS[0].hex()}\n  {b64encode(KEYS[1]).decode()}  \n"
    assert parse_master_keys(text, "file") == KEYS
    for bad in (KEYS[0].hex()[:-2], "z" * 64, b64encode(KEYS[0][:-1]).decode()):
        with pytest.raises(BadSettings) as caught:
            parse_master_keys(bad, "file")
        assert bad not in str(caught.value)


def test_a_command_prints_the_key_and_is_not_described(encrypted: dict[str, str]) -> None:
    path = encrypted.pop("encryption.master.key.file")
    encrypted["encryption.master.key.command"] = f"cat {path}"
    with Running(encrypted) as client:
        client.send("orders", SECRET)
        described = client.run(lambda cluster: Admin(cluster).settings(ResourceType.BROKER, "1"))
        command = next(each for each in described if each.name == "encryption.master.key.command")
        assert command.value is None
        assert command.is_sensitive
        assert values(client) == [SECRET]
    assert not has_secret(encrypted["log.dirs"])


def test_the_master_key_is_rotated_while_the_node_runs(
    encrypted: dict[str, str], tmp_path: Path, run: CommandLine
) -> None:
    masters = Path(encrypted["log.dirs"], "encryption-masters")
    with Running(encrypted) as client:
        client.send("orders", SECRET)
        before = masters.read_text()
        key_file(tmp_path, KEYS[1], KEYS[0])
        wait_for(lambda: masters.read_text() != before and masters.read_text().count('", "') == 0)
        client.send("orders", SECRET)
        key_file(tmp_path, KEYS[1])
    with Running(encrypted) as client:
        assert values(client) == [SECRET, SECRET]
    # A stopped node is rotated by a command.
    key_file(tmp_path, KEYS[0], KEYS[1])
    sets = [part for name, value in encrypted.items() for part in ("--set", f"{name}={value}")]
    assert "encrypted with master key" in run.ok("storage", "rotate-key", *sets).out
    key_file(tmp_path, KEYS[0])
    with Running(encrypted) as client:
        assert values(client) == [SECRET, SECRET]


def test_a_key_that_is_removed_too_early_is_kept_in_use(
    encrypted: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Running(encrypted) as client:
        client.send("orders", SECRET)
        key_file(tmp_path, KEYS[1])
        wait_for(lambda: "the previous ones stay in use" in caplog.text)
        client.send("orders", SECRET)
        assert values(client) == [SECRET, SECRET]
        key_file(tmp_path, KEYS[0])


def test_replicas_encrypt_each_for_itself(tmp_path: Path) -> None:
    nodes = cluster_settings(
        {"group.initial.rebalance.delay.ms": "0", "admin.listeners": "off"},
        count=3, host="127.0.0.1", port=0, folder=str(tmp_path), cluster_id="MvDxzVmcRsaTz33bUuRU6A",
    )  # fmt: skip
    for number, static in enumerate(nodes[:2]):
        static["log.encryption.enable"] = "true"
        static["encryption.master.key.file"] = key_file(tmp_path, KEYS[number], name=f"{number}.key")
    running = [BrokerNode(static) for static in nodes]
    with ThreadPoolExecutor(len(running)) as threads:
        # Each waits for the others.
        list(threads.map(BrokerNode.start, running))
    bootstrap = ",".join(static["listeners"].split(",")[0].partition("://")[2] for static in nodes)
    records = [SECRET + b"%d" % number for number in range(50)]
    with SyncClient(bootstrap) as client:
        client.create_topic("orders", partitions=3)
        client.send_all("orders", [(b"%d" % number, value) for number, value in enumerate(records)])
        # Every replica leads once, so that each is read from.
        assert sorted(filter(None, values(client))) == sorted(records)
        for node in running:
            node.stop()
            assert sorted(filter(None, values(client))) == sorted(records)
            node.start()
    for node in running:
        node.stop()
    assert [has_secret(static["log.dirs"]) for static in nodes] == [False, False, True]


# Permissions


def modes(folder: Path) -> set[tuple[bool, int]]:
    return {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in (folder, *folder.rglob("*"))}


def test_data_is_for_its_own_user_only(tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        with Running(settings(tmp_path)) as client:
            client.send("orders", b"value")
    finally:
        os.umask(umask)
    assert modes(tmp_path / "data") == {(True, 0o700), (False, 0o600)}


def test_an_open_directory_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    with Running(settings(tmp_path)), caplog.at_level(logging.WARNING):
        assert "is open to other users (mode 0755): run chmod 700 on it" in caplog.text


def test_a_key_file_that_is_open_to_others_is_refused(tmp_path: Path) -> None:
    for mode in (0o604, 0o620, 0o660, 0o777):
        path = key_file(tmp_path, KEYS[0], mode=mode)
        with pytest.raises(BadSettings, match="is open to other users"):
            BrokerNode(settings(tmp_path, **{"encryption.master.key.file": path})).start()


# The command line


def test_a_random_key_is_a_master_key(run: CommandLine) -> None:
    keys = {run.ok("storage", "random-key").out for _ in range(3)}
    assert len(keys) == 3
    assert all(len(parse_master_keys(key, "output")) == 1 for key in keys)


def test_log_dump(encrypted: dict[str, str], run: CommandLine, tmp_path: Path) -> None:
    with Running(encrypted) as client:
        client.send("orders", SECRET)
    folder = f"{encrypted['log.dirs']}/orders-0"
    out = run.ok("log", "dump", folder, "--records").out
    assert "encrypted" in out
    assert SECRET.decode() not in out
    path = encrypted["encryption.master.key.file"]
    out = run.ok("log", "dump", folder, "--records", "--master-key-file", path).out
    assert SECRET.decode() in out
    assert "crc ok" in out
    wrong = key_file(tmp_path, KEYS[1], name="wrong")
    assert "not given" in run("log", "dump", folder, "--master-key-file", wrong).out
