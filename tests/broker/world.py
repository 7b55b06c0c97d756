"""A real broker with a data directory and a listener, and a client for messages."""

import asyncio
import contextlib
import struct
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.pipeline import Pipeline
from runnel.broker.runtime.running import start_broker, start_quorum
from runnel.broker.runtime.topic_creation import create_topics
from runnel.controller.settings import Settings
from runnel.disk.data_directory import DataDirectory
from runnel.disk.keyring import Keyring
from runnel.disk.os_files import OsFiles
from runnel.disk.workers import LoopWorkers
from runnel.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from runnel.messages.registry import api
from runnel.net.admission import Admission, ListenerLimits
from runnel.net.listener import Listener
from runnel.server.shells import LoopTimers, SystemClock, SystemEntropy
from runnel.wire import Request, decode
from runnel.wire.frame import has_flexible_header, read_response_header, request_frame


class BrokerWorld:
    """A broker with its dependencies, opened and closed by a test."""

    def __init__(
        self,
        folder: Path,
        settings: dict[str, str] | None = None,
        limits: ListenerLimits | None = None,
        node_id: int = 1,
    ) -> None:
        clock, entropy = SystemClock(), SystemEntropy()
        self.settings = Settings(settings or {})
        self.disk = DataDirectory(
            str(folder),
            files=OsFiles(),
            clock=clock,
            entropy=entropy,
            write_workers=LoopWorkers(2, "write"),
            sync_workers=LoopWorkers(2, "sync"),
            upkeep_workers=LoopWorkers(1, "upkeep"),
            read_workers=LoopWorkers(1, "read"),
            keyring=Keyring([bytes(32)], OsFiles(), str(folder)),
        )
        timers = LoopTimers(asyncio.get_running_loop())
        self.broker = Broker(node_id, "", "127.0.0.1", 0, clock, timers, self.disk, entropy, self.settings)
        self.listener = Listener(Pipeline(self.broker), "PLAINTEXT", Admission(limits))
        self.clients: list[Client] = []

    async def __aenter__(self) -> "BrokerWorld":
        self._stack = AsyncExitStack()
        self._stack.callback(self.disk.close)
        self.broker.port = self.listener.bind("127.0.0.1", 0)
        await start_quorum(self.broker, self._stack)
        await start_broker(self.broker, self._stack)
        self.listener.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self.clients:
            await client.close()
        self.broker.transactions.stop()
        self.broker.groups.stop()
        await self.listener.close(grace_seconds=1)
        await self._stack.aclose()

    async def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        """A topic; settings are given with underscores for dots."""
        topic = CreatableTopic(
            name,
            partitions,
            1,
            configs=[CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()],
        )
        response = await create_topics(self.broker, CreateTopicsRequest([topic]))
        assert response.topics[0].error_code == 0, response.topics[0].error_message

    def topic_id(self, name: str) -> bytes:
        return self.broker.metadata.image.topics[name].id

    async def connect(self) -> "Client":
        client = Client(*await asyncio.open_connection("127.0.0.1", self.broker.port))
        self.clients.append(client)
        return client


class Client:
    """A connection for messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.sent: list[tuple[Request, int, int]] = []
        self._correlation_id = 0

    def send(self, request: Request, version: int, client_id: str | None = "test") -> None:
        """Send a request without waiting."""
        self._correlation_id += 1
        self.writer.write(b"".join(request_frame(request, version, self._correlation_id, client_id)))
        self.sent.append((request, version, self._correlation_id))

    async def receive(self) -> Any:
        """The response to the oldest pending request."""
        request, version, expected_id = self.sent.pop(0)
        response = api(request.api_key).response
        frame = memoryview(await self.receive_frame())
        correlation_id, position = read_response_header(frame, has_flexible_header(response, version))
        assert correlation_id == expected_id
        return decode(response, version, frame, position)

    async def receive_frame(self) -> bytes:
        async with asyncio.timeout(20):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def ask(self, request: Request, version: int, client_id: str | None = "test") -> Any:
        self.send(request, version, client_id)
        return await self.receive()

    async def is_closed(self) -> bool:
        """True if the next read returns end of file."""
        try:
            async with asyncio.timeout(20):
                return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()
