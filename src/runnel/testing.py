"""A real broker, or a cluster of them, inside a test.

    with Broker() as broker:
        client = AnyKafkaClient(bootstrap_servers=broker.bootstrap_servers)

    with Broker(nodes=3) as cluster:
        cluster.nodes[0].kill()

Each node listens on a free local port, stores its data in a temporary directory and runs in its own thread,
so that blocking and asynchronous clients can use it from the same test. `async with Broker()` works too.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from runnel.client.loop_thread import LoopThread, fastest_loop
from runnel.client.sync import SyncClient
from runnel.controller.config_broker_node import ADMIN_LISTENERS, OFF
from runnel.server.node import Node

SETTINGS = {
    # Both shorten the start of a consumer group.
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
}
"""Defaults that differ from `runnel serve`; `settings` override them."""

STOP_TIMEOUT_S = 20.0


class BrokerNode:
    """One node of a `Broker`; it can be stopped, killed and started again."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = {ADMIN_LISTENERS: OFF, **settings}
        self._thread: LoopThread | None = None
        self._node: Node | None = None

    @property
    def node_id(self) -> int:
        """Its id in the cluster."""
        return int(self.settings["node.id"])

    @property
    def data_dir(self) -> str:
        """Its data directory."""
        return self.settings["log.dirs"]

    @property
    def admin_address(self) -> str | None:
        """The address of its admin listener, as host:port; None if it is off, or does not run."""
        return None if self._node is None else self._node.admin_address

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not stopped or killed since."""
        return self._node is not None

    def start(self) -> int:
        """Start; on return it accepts requests on the port that is returned."""
        if self._thread is not None:
            raise RuntimeError("the broker is already running")
        node = Node(self.settings)
        thread = LoopThread("runnel broker", fastest_loop)
        try:
            thread.call(node.start())
        except BaseException:
            thread.close()
            raise
        self._thread, self._node = thread, node
        return node.port

    def stop(self) -> None:
        """Shut down cleanly; the data is kept."""
        self._end(is_clean=True)

    def kill(self) -> None:
        """End as by `kill -9`: connections are closed, and what is not written is lost."""
        self._end(is_clean=False)

    def restart(self) -> None:
        """Stop, and start with the same data and port."""
        self.stop()
        self.start()

    def _end(self, *, is_clean: bool) -> None:
        if self._thread is not None and self._node is not None:
            thread, node = self._thread, self._node
            self._thread = self._node = None
            try:
                thread.call(node.stop() if is_clean else node.disconnect())
            finally:
                thread.close()
            # Not before its event loop is closed: another node may use the directory from here on.
            node.abandon()


class LocalGateway:
    """A gateway in a process of its own, which ends with this one."""

    def __init__(
        self,
        bootstrap: str,
        protocol: str,
        alerts: str = "off",
        *,
        role: str = "both",
        tls: "tuple[Path, Path] | None" = None,
    ) -> None:
        """`alerts` is a file with the settings of alerts, which it then evaluates.

        `role` is ingress, egress or both; `tls` are the PEM files of a certificate and its key.
        """
        # Imported here: few tests need it.
        import subprocess

        from runnel.server.gateway_process import READY_PREFIX, HttpOptions, gateway_command
        from runnel.server.process import SUPERVISOR_FD

        command = gateway_command(
            bootstrap,
            ["--listen", "127.0.0.1:0"],
            protocol=protocol,
            options=HttpOptions(
                alerts=alerts,
                role=role,
                tls_certificate=None if tls is None else tls[0],
                tls_key=None if tls is None else tls[1],
            ),
            log_level="warning",
        )
        end, self._pipe = os.pipe()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=(end,),
            env={**os.environ, SUPERVISOR_FD: str(end)},
            start_new_session=True,
        )
        os.close(end)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith(READY_PREFIX):
            self.close()
            raise RuntimeError("the gateway did not start; it has printed why")
        self.url = line.removeprefix(READY_PREFIX).strip()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def close(self) -> None:
        """Stop it."""
        os.close(self._pipe)
        self._process.terminate()
        self._process.wait(STOP_TIMEOUT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Broker:
    """A broker, or a cluster, for tests; use as `with` or `async with`."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        nodes: int = 1,
        data_dir: str | os.PathLike[str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        security_protocol: str = "PLAINTEXT",
        admin: bool = False,
        gateway: bool = False,
    ) -> None:
        """`settings` are broker settings by their Kafka names. A given `data_dir` is kept at the end.

        All listeners use the security protocol; SSL needs `ssl.keystore.location` or the like in `settings`.
        With several `nodes`, each is a broker and a controller; the ports follow `port`, or are free ones.
        `admin`: each node serves metrics and health at its `admin_address`.
        With `gateway`, the HTTP API and the console are served at `gateway_url`.
        """
        listeners = {ADMIN_LISTENERS: f"{_authority(host)}:0" if admin else OFF}
        self.settings = {
            **SETTINGS,
            **listeners,
            **{name: _text(value) for name, value in (settings or {}).items()},
        }
        self.host = host
        self.security_protocol = security_protocol
        self.port = port
        """The port of the first node, known once started; a restart keeps it."""
        self.nodes: list[BrokerNode] = []
        """The nodes, once started."""
        self._node_count = nodes
        self._has_gateway = gateway
        self._gateway: LocalGateway | None = None
        self._given_dir = None if data_dir is None else os.fspath(data_dir)
        self.data_dir = self._given_dir
        """The data directory, known once started; that of several nodes has one directory for each."""

    @property
    def bootstrap_servers(self) -> str:
        """Value for a client's bootstrap.servers."""
        if len(self.nodes) <= 1:
            return f"{self.host}:{self.port}"
        listeners = (node.settings["listeners"].split(",")[0] for node in self.nodes)
        return ",".join(listener.partition("://")[2] for listener in listeners)

    @property
    def admin_address(self) -> str | None:
        """The address of the first node's admin listener, as host:port; None if it is off."""
        return self.nodes[0].admin_address if self.nodes else None

    @property
    def gateway_url(self) -> str:
        """The address of the HTTP API and the console, with a slash at the end."""
        if self._gateway is None:
            raise RuntimeError("there is no gateway: Broker(gateway=True)")
        return self._gateway.url

    def start(self) -> "Broker":
        """Start; on return all nodes accept requests."""
        self._start_nodes()
        if self._has_gateway and self._gateway is None:
            try:
                self._gateway = LocalGateway(self.bootstrap_servers, self.security_protocol)
            except BaseException:
                self.stop()
                raise
        return self

    def _start_nodes(self) -> None:
        if any(node.is_running for node in self.nodes):
            raise RuntimeError("the broker is already running")
        if self.data_dir is None:
            self.data_dir = tempfile.mkdtemp(prefix="runnel-test-")
        if self._node_count > 1:
            self._start_cluster(self.data_dir)
            return
        static = {
            "node.id": "1",
            **self.settings,
            "log.dirs": self.data_dir,
            "listeners": self._listener(),
        }
        self.nodes = [BrokerNode(static)]
        self.port = self.nodes[0].start()
        self.nodes[0].settings["listeners"] = self._listener()

    def _listener(self) -> str:
        return f"{self.security_protocol}://{self.host}:{self.port}"

    def _start_cluster(self, folder: str) -> None:
        if not self.nodes:
            self.nodes = [BrokerNode(static) for static in self._cluster_settings(folder)]
            self.port = int(self.nodes[0].settings["listeners"].split(",")[0].rpartition(":")[2])
        # A node waits for a majority of the others.
        with ThreadPoolExecutor(len(self.nodes)) as threads:
            starting = [threads.submit(node.start) for node in self.nodes]
        failures = [failure for each in starting if (failure := each.exception()) is not None]
        if failures:
            self.stop()
            raise failures[0]

    def _cluster_settings(self, folder: str) -> list[dict[str, str]]:
        # Imported here: one node does not need it.
        from runnel.server.local_nodes import cluster_id_in, cluster_settings

        return cluster_settings(
            self.settings,
            count=self._node_count,
            host=self.host,
            port=self.port,
            folder=folder,
            cluster_id=cluster_id_in(folder),
            protocol=self.security_protocol,
        )

    def stop(self) -> None:
        """Shut down cleanly; the data is kept until the end of the `with` block."""
        running = [node for node in self.nodes if node.is_running]
        if len(running) == 1:
            running[0].stop()
        elif running:
            with ThreadPoolExecutor(len(running)) as threads:
                for ended in [threads.submit(node.stop) for node in running]:
                    ended.result()

    def restart(self) -> None:
        """Restart with the same data and ports."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and remove the data unless `data_dir` was given."""
        try:
            if self._gateway is not None:
                self._gateway.close()
                self._gateway = None
            self.stop()
        finally:
            if self._given_dir is None and self.data_dir is not None:
                shutil.rmtree(self.data_dir, ignore_errors=True)
                self.data_dir = None

    def client(self, *, timeout_s: float = 30.0, properties: Mapping[str, str] | None = None) -> SyncClient:
        """A client connected to this broker; close it, or use it as `with`.

        `properties` are those of Kafka's clients for TLS and SASL.
        """
        return SyncClient(self.bootstrap_servers, timeout_s=timeout_s, properties=properties)

    def __enter__(self) -> "Broker":
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> "Broker":
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)


def _authority(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
