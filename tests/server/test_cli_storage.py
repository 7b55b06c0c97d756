"""`runnel storage`: ids, formatting, and what is refused."""

from pathlib import Path

import pytest

from runnel.disk.identity import read_identity
from runnel.disk.os_files import OsFiles
from runnel.disk.snapshots import SnapshotFiles
from runnel.model.ids import SnapshotId, id_from_text, id_text
from runnel.raft.control import read_snapshot_voters
from runnel.raft.values import Endpoint
from runnel.schemas.metadata import FeatureLevelRecord
from runnel.server.storage import read_bootstrap

CLUSTER = "MvDxzVmcRsaTz33bUuRU6A"
DYNAMIC = """\
process.roles=broker,controller
node.id=2
controller.quorum.bootstrap.servers=localhost:9093,other:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
controller.listener.names=CONTROLLER
"""
OTHERS = "1@one:9093:JEXY6aqzQY-32P5TStzaFg,2@[::1]:9094:07R5amHmR32VDA6jHkGbTA"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "server.properties"
    file.write_text(f"{DYNAMIC}log.dirs={tmp_path / 'data'}\n")
    return file


@pytest.fixture
def folder(config: Path) -> str:
    return str(config.parent / "data")


def levels(folder: str) -> dict[str, int]:
    records = read_bootstrap(OsFiles(), folder)
    assert records is not None
    assert all(isinstance(record, FeatureLevelRecord) for record in records)
    return {record.name: record.feature_level for record in records if isinstance(record, FeatureLevelRecord)}


def test_random_ids_are_valid_and_differ(run):
    ids = {run.ok("storage", "random-uuid").out.strip() for _ in range(3)}
    assert len(ids) == 3
    assert all(len(id_from_text(text)) == 16 for text in ids)


def test_a_standalone_controller(run, config, folder):
    out = run.ok("storage", "format", "-t", CLUSTER, "-c", str(config), "--standalone").out
    assert out == f"Formatting dynamic metadata voter directory {folder} with metadata.version 30.\n"
    identity = read_identity(OsFiles(), folder)
    assert identity is not None
    assert (identity.cluster_id, identity.node_id) == (CLUSTER, 2)
    assert levels(folder)["metadata.version"] == 30
    version, voters = read_snapshot_voters(
        SnapshotFiles(OsFiles(), f"{folder}/__cluster_metadata-0").read(SnapshotId(0, 0))
    )
    assert version == 1 and voters is not None
    (voter,) = voters
    assert voter.key == (2, identity.directory_id)
    assert voter.endpoints == (Endpoint("CONTROLLER", "localhost", 9093),)


def test_initial_controllers(run, config, folder):
    run.ok("storage", "format", "-t", CLUSTER, "-c", str(config), "--initial-controllers", OTHERS)
    identity = read_identity(OsFiles(), folder)
    assert identity is not None and id_text(identity.directory_id) == "07R5amHmR32VDA6jHkGbTA"
    _, voters = read_snapshot_voters(
        SnapshotFiles(OsFiles(), f"{folder}/__cluster_metadata-0").read(SnapshotId(0, 0))
    )
    assert voters is not None
    assert [(voter.key.id, voter.endpoints[0][1:]) for voter in voters] == [
        (1, ("one", 9093)),
        (2, ("::1", 9094)),
    ]


def test_a_node_that_joins_has_no_voters(run, config, folder):
    out = run.ok("storage", "format", "-t", CLUSTER, "-c", str(config), "-N").out
    assert out.startswith("Formatting metadata directory")
    assert not Path(folder, "__cluster_metadata-0").exists()


def test_features_of_an_older_release(run, config, folder):
    run.ok("storage", "format", "-t", CLUSTER, "-c", str(config), "-N", "-r", "3.9")
    assert levels(folder) == {"metadata.version": 21}


def test_chosen_features(run, config, folder):
    arguments = ["-t", CLUSTER, "-c", str(config), "-N", "-f", "metadata.version=25"]
    run.ok("storage", "format", *arguments, "-f", "transaction.version=1")
    assert levels(folder) == {"metadata.version": 25, "group.version": 1, "transaction.version": 1}


def test_a_formatted_directory(run, config, folder):
    arguments = ["storage", "format", "-t", CLUSTER, "-c", str(config)]
    run.ok(*arguments, "-N")
    assert "is already formatted" in run.fails(*arguments, "-N").err
    assert "already formatted" in run.ok(*arguments, "-N", "--ignore-formatted").out
    other = run.fails("storage", "format", "-t", "other", "-c", str(config), "-N", "-g")
    assert f"belongs to the cluster {CLUSTER}, and this node to other" in other.err
    described = run.ok("storage", "info", "-c", str(config), "--json").json
    assert described.items() >= {"directory": folder, "cluster.id": CLUSTER, "node.id": 2}.items()
    assert CLUSTER in run.ok("storage", "info", "-c", str(config)).out


def test_a_directory_that_is_not_formatted(run, config, folder):
    assert "does not exist" in run.fails("storage", "info", "-c", str(config)).err
    Path(folder).mkdir()
    assert "is not formatted" in run.fails("storage", "info", "-c", str(config)).err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "add --standalone, --initial-controllers or --no-initial-controllers"),
        (["--set", "controller.quorum.voters=2@a:1", "-s"], "the quorum is static"),
        (
            ["--set", "process.roles=broker", "--set", "listeners=PLAINTEXT://:9092", "-s"],
            "only a node whose process.roles has controller",
        ),
        (["-I", "1@one:9093"], "not of the form id@host:port:directory"),
        (["-I", "1@one:0:JEXY6aqzQY-32P5TStzaFg"], "not of the form id@host:port:directory"),
        (["-I", f"{OTHERS},{OTHERS}"], "node 1 is listed twice"),
    ],
)
def test_refused_formats(run, config, folder, arguments, complaint):
    assert complaint in run.fails("storage", "format", "-t", CLUSTER, "-c", str(config), *arguments).err
    assert not Path(folder).exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-s", "-N"], "only one of --standalone"),
        (["-N", "-r", "9.9"], "is not a release"),
        (["-N", "-f", "metadata.version=6"], "metadata.version=6 is not supported"),
        (["-N", "-f", "nonsense=1"], "nonsense=1 is not supported"),
    ],
)
def test_wrong_usage(run, config, folder, arguments, complaint):
    ended = run("storage", "format", "-t", CLUSTER, "-c", str(config), *arguments)
    assert (ended.code, complaint in ended.err) == (2, True), ended.err
    assert not Path(folder).exists()
