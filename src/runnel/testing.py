"""A real broker inside a test.

    with Broker() as broker:
        client = AnyKafkaClient(bootstrap_servers=broker.bootstrap_servers)

It listens on a free local port, stores its data in a temporary directory and runs in its own thread, so that
blocking and asynchronous clients can use it from the same test. `async with Broker()` works too.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Mapping
from types import TracebackType

from runnel.client.loop_thread import LoopThread, fastest_loop
from runnel.client.sync import SyncClient
from runnel.server.node import Node

SETTINGS = {
    # Both shorten the start of a consumer group.
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
}
"""Defaults that differ from `runnel serve`; `settings` override them."""


class Broker:
    """A broker for tests; use as `with` or `async with`."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """`settings` are broker settings by their Kafka names. A given `data_dir` is kept at the end."""
        self.settings = {**SETTINGS, **{name: _text(value) for name, value in (settings or {}).items()}}
        self.host = host
        self.port = port
        """The port, known once started; a restart keeps it."""
        self._given_dir = None if data_dir is None else os.fspath(data_dir)
        self.data_dir = self._given_dir
        """The data directory, known once started."""
        self._thread: LoopThread | None = None
        self._node: Node | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Value for a client's bootstrap.servers."""
        return f"{self.host}:{self.port}"

    def start(self) -> "Broker":
        """Start; on return the broker accepts requests."""
        if self._thread is not None:
            raise RuntimeError("the broker is already running")
        if self.data_dir is None:
            self.data_dir = tempfile.mkdtemp(prefix="runnel-test-")
        node = Node(
            {
                "node.id": "1",
                **self.settings,
                "log.dirs": self.data_dir,
                "listeners": f"PLAINTEXT://{self.host}:{self.port}",
            }
        )
        thread = LoopThread("runnel broker", fastest_loop)
        try:
            thread.call(node.start())
        except BaseException:
            thread.close()
            raise
        self._thread, self._node, self.port = thread, node, node.port
        return self

    def stop(self) -> None:
        """Shut down cleanly; the data is kept until the end of the `with` block."""
        if self._thread is not None and self._node is not None:
            thread, node = self._thread, self._node
            self._thread = self._node = None
            try:
                thread.call(node.stop())
            finally:
                thread.close()

    def restart(self) -> None:
        """Restart with the same data and port."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and remove the data unless `data_dir` was given."""
        try:
            self.stop()
        finally:
            if self._given_dir is None and self.data_dir is not None:
                shutil.rmtree(self.data_dir, ignore_errors=True)
                self.data_dir = None

    def client(self, *, timeout_s: float = 30.0) -> SyncClient:
        """A client connected to this broker; close it, or use it as `with`."""
        return SyncClient(self.bootstrap_servers, timeout_s=timeout_s)

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


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
