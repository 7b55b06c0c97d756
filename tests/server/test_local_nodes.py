"""Settings of several nodes on one machine."""

import socket
from pathlib import Path

import pytest

from runnel.controller.settings import Settings
from runnel.server import local_nodes
from runnel.server.layers import BadSettings
from runnel.server.local_nodes import admin_listeners, check_folders, cluster_settings, worker_settings
from runnel.server.roles import Roles, data_directory, roles_of

JOINED = {
    "process.roles": "broker,controller",
    "node.id": "10",
    "controller.quorum.voters": "10@a:9094,20@b:9094,30@c:9094",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9094",
}


def roles(nodes: list[dict[str, str]]) -> list[Roles]:
    return [roles_of(Settings(node)) for node in nodes]


def test_workers_of_a_single_host_are_a_cluster(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    nodes = worker_settings({"listeners": "PLAINTEXT://127.0.0.1:9092", "log.dirs": str(folder)}, 3)
    first, second, third = roles(nodes)
    assert [each.node_id for each in (first, second, third)] == [1, 2, 3]
    assert [each.is_controller for each in (first, second, third)] == [True, False, False]
    assert not first.has_other_controllers and second.has_other_controllers
    controller = first.controller_listeners[0]
    assert controller.host == "127.0.0.1"
    assert second.voters == third.voters == {1: ("127.0.0.1", controller.port)}
    ports = [each.broker_listeners[0].port for each in (first, second, third)]
    assert ports[0] == 9092
    assert ports == sorted(set(ports)) and controller.port not in ports
    assert [node["log.dirs"] for node in nodes] == [
        str(folder),
        f"{folder}-worker-2",
        f"{folder}-worker-3",
    ]
    assert {node["offsets.topic.replication.factor"] for node in nodes} == {"1"}


def test_workers_of_a_host_in_a_cluster_have_one_voter(tmp_path: Path) -> None:
    nodes = worker_settings({**JOINED, "log.dirs": str(tmp_path / "data")}, 4)
    found = roles(nodes)
    assert [each.node_id for each in found] == [10, 11, 12, 13]
    assert [each.is_controller for each in found] == [True, False, False, False]
    # 9094 is the port of the controller.
    assert [each.broker_listeners[0].port for each in found] == [9092, 9093, 9095, 9096]
    assert nodes[0]["controller.quorum.voters"] == nodes[3]["controller.quorum.voters"]
    assert "offsets.topic.replication.factor" not in nodes[1]


def test_all_listeners_and_advertised_ports_move_together(tmp_path: Path) -> None:
    static = {
        "listeners": "INSIDE://:9092,OUTSIDE://:9192",
        "advertised.listeners": "INSIDE://host:9092,OUTSIDE://public.example.com:1000",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "log.dirs": str(tmp_path / "data"),
    }
    _, second = worker_settings(static, 2)
    assert second["listeners"] == "INSIDE://:9093,OUTSIDE://:9193"
    assert second["advertised.listeners"] == "INSIDE://host:9093,OUTSIDE://public.example.com:1001"
    assert roles([second])[0].inter_broker_listener == "INSIDE"


@pytest.mark.parametrize(
    ("changes", "count", "complaint"),
    [
        ({"node.id": "18", "controller.quorum.voters": "18@a:1,20@b:1"}, 3, "worker 3 would be node 20"),
        ({"listeners": "PLAINTEXT://:65534,CONTROLLER://:9094"}, 3, "choose a lower one"),
        ({"process.roles": "controller", "listeners": "CONTROLLER://:9094"}, 2, "--workers is for brokers"),
        ({"log.dirs": "a,b"}, 2, "exactly one data directory"),
        ({"log.dirs": "a", "metadata.log.dir": "b"}, 2, "metadata.log.dir must be the data directory"),
    ],
)
def test_refused_workers(tmp_path: Path, changes: dict[str, str], count: int, complaint: str) -> None:
    with pytest.raises(BadSettings, match=complaint):
        worker_settings({**JOINED, "log.dirs": str(tmp_path / "data"), **changes}, count)


def test_the_metadata_log_is_in_the_data_directory(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    first, second = worker_settings({**JOINED, "log.dirs": folder, "metadata.log.dir": folder + "/"}, 2)
    assert data_directory(Settings(first)) == folder
    assert data_directory(Settings(second)) != folder


def test_fewer_workers_than_directories_are_refused(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    check_folders(folder, 1)
    (tmp_path / "data-worker-3").mkdir()
    (tmp_path / "other-worker-9").mkdir()
    check_folders(folder, 3)
    with pytest.raises(BadSettings, match=r"data-worker-3 belongs to worker 3, and --workers is 2"):
        worker_settings({**JOINED, "log.dirs": folder}, 2)


def test_a_local_cluster(tmp_path: Path) -> None:
    nodes = cluster_settings(
        {"num.partitions": "6"}, count=3, host="127.0.0.1", port=9092, folder=str(tmp_path), cluster_id="c"
    )
    found = roles(nodes)
    assert [each.broker_listeners[0].port for each in found] == [9092, 9093, 9094]
    assert [each.controller_listeners[0].port for each in found] == [9095, 9096, 9097]
    assert found[0].voters == {number: ("127.0.0.1", 9094 + number) for number in (1, 2, 3)}
    assert [node["log.dirs"] for node in nodes] == [str(tmp_path / f"node-{n}") for n in (1, 2, 3)]
    assert nodes[0]["num.partitions"] == "6"
    assert nodes[0]["default.replication.factor"] == "3"
    assert nodes[0]["min.insync.replicas"] == "2"


@pytest.mark.parametrize(("count", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (5, "3", "2")])
def test_replicas_of_local_clusters(tmp_path: Path, count: int, replicas: str, in_sync: str) -> None:
    nodes = cluster_settings({}, count=count, host="127.0.0.1", port=0, folder=str(tmp_path), cluster_id="c")
    ports = [address.port for each in roles(nodes) for address in each.listeners]
    assert len(set(ports)) == 2 * count and all(ports)
    assert nodes[0]["offsets.topic.replication.factor"] == replicas
    assert nodes[0]["transaction.state.log.min.isr"] == in_sync


def test_admin_listeners_are_in_sequence(tmp_path: Path) -> None:
    static = {**JOINED, "log.dirs": str(tmp_path / "data")}
    given = {"admin.listeners": "0.0.0.0:7000,[::1]:8000"}
    listeners = [node["admin.listeners"] for node in worker_settings({**static, **given}, 3)]
    assert listeners == ["0.0.0.0:7000,[::1]:8000", "0.0.0.0:7001,[::1]:8001", "0.0.0.0:7002,[::1]:8002"]
    off = worker_settings({**static, "admin.listeners": "off"}, 2)
    assert [node["admin.listeners"] for node in off] == ["off", "off"]
    free = worker_settings({**static, "admin.listeners": "127.0.0.1:0"}, 2)
    assert [node["admin.listeners"] for node in free] == ["127.0.0.1:0"] * 2


def test_default_admin_listeners_are_off_where_the_port_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        monkeypatch.setattr(
            local_nodes, "parse_host_port", lambda text: ("127.0.0.1", port if text.endswith("9644") else 0)
        )
        assert admin_listeners(Settings({}), 1) == ["off"]
        assert admin_listeners(Settings({"admin.listeners": "127.0.0.1:9644"}), 1) == [f"127.0.0.1:{port}"]
