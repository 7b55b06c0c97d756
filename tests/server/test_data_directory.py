"""The data directory of a node: to whom it belongs, and directories of older releases."""

import asyncio
import tarfile
from pathlib import Path

import pytest

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.connection import Connection
from runnel.client.groups import Groups
from runnel.disk.identity import read_identity
from runnel.disk.os_files import OsFiles
from runnel.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from runnel.model.configs import ResourceType
from runnel.ports.disk import BadDirectory, Identity
from runnel.server.node import Node
from runnel.testing import Broker

FOLDERS = Path(__file__).parent / "folders"
OLD_CLUSTER_ID = "tDA0kYtO3dHqPHaV7P73zQ"


def settings(folder: Path, **others: str) -> dict[str, str]:
    return {
        "log.dirs": str(folder),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        **{name.replace("_", "."): value for name, value in others.items()},
    }


async def cluster_id(node: Node) -> str:
    connection = await Connection.open("127.0.0.1", node.port)
    described = await connection.send(DescribeClusterRequest(), DescribeClusterResponse)
    await connection.close()
    return described.cluster_id


def start(static: dict[str, str]) -> str:
    """Start and stop a node; returns the cluster id that it reports."""

    async def scenario() -> str:
        async with Node(static) as node:
            return await cluster_id(node)

    return asyncio.run(scenario())


def identity(folder: Path) -> Identity:
    found = read_identity(OsFiles(), str(folder))
    assert found is not None
    return found


def test_a_new_directory_belongs_to_its_first_node(tmp_path: Path) -> None:
    found = start(settings(tmp_path, node_id="3"))
    known = identity(tmp_path)
    assert (known.cluster_id, known.node_id) == (found, 3)
    assert start(settings(tmp_path, node_id="3")) == found
    assert identity(tmp_path) == known


def test_the_cluster_id_may_be_set(tmp_path: Path) -> None:
    assert start(settings(tmp_path, cluster_id="MvDxzVmcRsaTz33bUuRU6A")) == "MvDxzVmcRsaTz33bUuRU6A"
    assert start(settings(tmp_path)) == "MvDxzVmcRsaTz33bUuRU6A"


@pytest.mark.parametrize(
    ("others", "complaint"),
    [
        ({"node_id": "4"}, "belongs to node 3, and this is node 4"),
        ({"node_id": "3", "cluster_id": "other"}, "belongs to the cluster .* and this node to other"),
    ],
)
def test_the_directory_of_another_node_is_refused_and_not_changed(
    tmp_path: Path, others: dict[str, str], complaint: str
) -> None:
    start(settings(tmp_path, node_id="3"))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(BadDirectory, match=complaint):
        start(settings(tmp_path, **others))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_directory_of_an_older_release_keeps_everything(tmp_path: Path) -> None:
    with tarfile.open(FOLDERS / "release-0.1.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    directory_id = identity(tmp_path).directory_id
    for _ in range(2):
        with Broker(data_dir=tmp_path) as broker, broker.client() as client:
            records = client.read("orders")
            assert {record.value for record in records} == {b"coffee", b"honey", b"tea"}
            assert client.topics() == ["orders"]
            assert client.run(_stored) == (OLD_CLUSTER_ID, "-1", 3)
        assert identity(tmp_path) == Identity(directory_id, OLD_CLUSTER_ID, 1)


async def _stored(cluster: Cluster) -> tuple[str, str | None, int]:
    """The cluster id, the retention of the topic, and the records that the group consumed."""
    described = await cluster.send_to_any(DescribeClusterRequest(), DescribeClusterResponse)
    configs = await Admin(cluster).settings(ResourceType.TOPIC, "orders")
    retention = next(config.value for config in configs if config.name == "retention.ms")
    committed = await Groups(cluster).committed("kitchen")
    return described.cluster_id, retention, sum(commit.offset for commit in committed.values())
