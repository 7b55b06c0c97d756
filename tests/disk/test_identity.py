"""meta.properties: Kafka's files are read, others are refused with what to do."""

from pathlib import Path

import pytest

from runnel.disk.identity import (
    check_identity,
    load_identity,
    new_id,
    read_identity,
    store_identity,
)
from runnel.disk.os_files import OsFiles
from runnel.model.ids import id_from_text, id_text
from runnel.ports.disk import BadDirectory, Identity
from runnel.server.shells import SystemEntropy

ID = "JEXY6aqzQY-32P5TStzaFg"
KAFKAS = f"""\
#
#Sat Nov 15 10:00:00 UTC 2025
node.id=3
version=1
directory.id={ID}
cluster.id=MvDxzVmcRsaTz33bUuRU6A
"""


def stored(folder: Path, text: str) -> str:
    (folder / "meta.properties").write_text(text)
    return str(folder)


def test_a_file_of_kafka(tmp_path: Path) -> None:
    identity = read_identity(OsFiles(), stored(tmp_path, KAFKAS))
    assert identity == Identity(id_from_text(ID), "MvDxzVmcRsaTz33bUuRU6A", 3)


def test_a_file_of_version_0_names_the_broker(tmp_path: Path) -> None:
    folder = stored(tmp_path, "version=0\nbroker.id=7\ncluster.id=abc\n")
    loaded = load_identity(OsFiles(), folder, SystemEntropy())
    assert (loaded.cluster_id, loaded.node_id, len(loaded.directory_id)) == ("abc", 7, 16)
    assert read_identity(OsFiles(), folder) == loaded
    assert "version=1" in (tmp_path / "meta.properties").read_text()


def test_what_is_stored_is_read(tmp_path: Path) -> None:
    identity = Identity(new_id(SystemEntropy()), "abc", 0)
    store_identity(OsFiles(), str(tmp_path), identity)
    assert read_identity(OsFiles(), str(tmp_path)) == identity


def test_an_empty_directory_receives_an_id_that_stays(tmp_path: Path) -> None:
    assert read_identity(OsFiles(), str(tmp_path)) is None
    first = load_identity(OsFiles(), str(tmp_path), SystemEntropy())
    assert (first.cluster_id, first.node_id) == ("", -1)
    assert load_identity(OsFiles(), str(tmp_path), SystemEntropy()) == first


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("version=2\n", "later release"),
        ("version=1\nnode.id=x\n", "is damaged"),
        ("version=1\ndirectory.id=short\n", "is damaged"),
        (f"version=1\ndirectory.id={id_text(bytes(15) + bytes([2]))}\n", "reserved directory.id"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(BadDirectory, match=complaint):
        load_identity(OsFiles(), stored(tmp_path, text), SystemEntropy())


def test_directories_of_other_nodes_and_clusters_are_refused() -> None:
    identity = Identity(bytes(16), "abc", 3)
    check_identity(identity, "/data", "abc", 3)
    check_identity(identity, "/data", "", 3)
    check_identity(Identity(bytes(16)), "/data", "abc", 3)
    with pytest.raises(BadDirectory, match=r"/data belongs to node 3, and this is node 4: .* node\.id=3"):
        check_identity(identity, "/data", "abc", 4)
    with pytest.raises(BadDirectory, match="/data belongs to the cluster abc, and this node to def"):
        check_identity(identity, "/data", "def", 3)


class Entropy:
    """Ids in this order."""

    def __init__(self, *ids: bytes) -> None:
        self._ids = iter(ids)

    def id_bytes(self) -> bytes:
        return next(self._ids)

    def below(self, bound: int) -> int:
        raise AssertionError


def test_new_ids_are_neither_reserved_nor_look_like_options() -> None:
    dash = b"\xf8" + bytes(15)
    assert id_text(dash).startswith("-")
    good = bytes([1] * 16)
    assert new_id(Entropy(bytes(15) + b"\x63", dash, good)) == good
