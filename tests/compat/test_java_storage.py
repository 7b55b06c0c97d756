"""Directories formatted by Apache Kafka's storage tool and by `runnel storage` are the same to both."""

import subprocess
from pathlib import Path

import pytest

from runnel.disk.identity import read_identity
from runnel.disk.os_files import OsFiles
from runnel.disk.snapshots import SnapshotFiles
from runnel.model.ids import SnapshotId
from runnel.raft.control import read_snapshot_voters
from runnel.server.storage import read_bootstrap
from tests.server.cli import CommandLine
from tools.kafka.commands import tool

pytestmark = [pytest.mark.java, pytest.mark.usefixtures("kafka_jars")]

CLUSTER = "MvDxzVmcRsaTz33bUuRU6A"
VOTERS = "1@one:9093:JEXY6aqzQY-32P5TStzaFg,2@two:9094:07R5amHmR32VDA6jHkGbTA"
CONFIG = """\
process.roles=broker,controller
node.id=2
controller.quorum.bootstrap.servers=one:9093,two:9094
listeners=PLAINTEXT://:9092,CONTROLLER://:9094
controller.listener.names=CONTROLLER
"""


def output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def config(folder: Path) -> Path:
    file = folder / "server.properties"
    file.write_text(f"{CONFIG}log.dirs={folder / 'data'}\n")
    return file


def test_kafka_reads_what_runnel_formats(tmp_path, capfd, monkeypatch):
    run = CommandLine(None, capfd, tmp_path, monkeypatch)
    file = config(tmp_path)
    run.ok("storage", "format", "-t", CLUSTER, "-c", str(file), "-I", VOTERS)
    info = output(tool("kafka-storage", "info", "-c", file))
    assert f"cluster.id={CLUSTER}" in info and "node.id=2" in info and "version=1" in info
    checkpoint = tmp_path / "data/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
    dumped = [
        output(tool("kafka-dump-log", "--cluster-metadata-decoder", "--files", path))
        for path in (checkpoint, tmp_path / "data/bootstrap.checkpoint")
    ]
    for word in ("SnapshotHeader", "KRaftVersion", "KRaftVoters", '"host":"two"', "SnapshotFooter"):
        assert word in dumped[0], dumped[0]
    assert '"name":"metadata.version","featureLevel":30' in dumped[1]


def test_runnel_reads_what_kafka_formats(tmp_path):
    file = config(tmp_path)
    output(tool("kafka-storage", "format", "-t", CLUSTER, "-c", file, "-I", VOTERS))
    folder = str(tmp_path / "data")
    identity = read_identity(OsFiles(), folder)
    assert identity is not None
    assert (identity.cluster_id, identity.node_id) == (CLUSTER, 2)
    store = SnapshotFiles(OsFiles(), f"{folder}/__cluster_metadata-0")
    version, voters = read_snapshot_voters(store.read(SnapshotId(0, 0)))
    assert version == 1 and voters is not None
    own = voters.get(2)
    assert own is not None and own.key.directory_id == identity.directory_id
    records = read_bootstrap(OsFiles(), folder)
    assert records is not None and "metadata.version" in str(records[0])
