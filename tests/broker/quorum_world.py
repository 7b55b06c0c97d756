"""Members of a metadata quorum in one process: real files, real sockets, and no controller above."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ParamSpec, cast

from runnel.batch.build import build_batch
from runnel.batch.records import Record, iterate_records
from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.metadata_log import MetadataLog
from runnel.broker.runtime.pipeline import Pipeline
from runnel.broker.runtime.promise import Promise, settled
from runnel.broker.runtime.quorum_log import METADATA_PARTITION, QuorumLog
from runnel.controller.image import MetadataImage
from runnel.controller.settings import Settings
from runnel.controller.values import Endpoint
from runnel.disk.data_directory import DataDirectory
from runnel.disk.os_files import OsFiles
from runnel.disk.workers import LoopWorkers
from runnel.model.errors import StorageFailed
from runnel.model.ids import SnapshotId
from runnel.net.listener import Listener
from runnel.net.peers import TcpPeers
from runnel.raft import values as raft
from runnel.raft.control import bootstrap_snapshot, snapshot_footer, snapshot_header
from runnel.raft.values import ReplicaKey
from runnel.raft.voters import Voter, Voters
from runnel.server.shells import LoopTimers, SystemClock, SystemEntropy
from tools.broker_process import free_port

P = ParamSpec("P")

LISTENER = "CONTROLLER"
NOW_MS = 1_700_000_000_000

_cleanup: ContextVar[AsyncExitStack] = ContextVar("cleanup")
"""Ends what a test has started, however the test ends."""


class Events:
    """A listener that records its events."""

    def __init__(self) -> None:
        self.committed = 0
        self.elected_epochs: list[int] = []
        self.leaders: list[tuple[int, int]] = []
        self.installed: list[SnapshotId] = []

    def advanced(self, high_watermark: int) -> None:
        assert high_watermark > self.committed
        self.committed = high_watermark

    def elected(self, epoch: int) -> None:
        self.elected_epochs.append(epoch)

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        self.leaders.append((leader_id, epoch))

    def snapshot_installed(self, snapshot: SnapshotId) -> None:
        self.installed.append(snapshot)


class MetadataEvents(Events):
    """A listener that lets an image follow, too."""

    def __init__(self, metadata: MetadataLog) -> None:
        super().__init__()
        self._metadata = metadata

    def advanced(self, high_watermark: int) -> None:
        super().advanced(high_watermark)
        self._metadata.advanced(high_watermark)

    def elected(self, epoch: int) -> None:
        super().elected(epoch)
        self._metadata.elected(epoch)

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        super().leader_changed(leader_id, epoch)
        self._metadata.leader_changed(leader_id, epoch)

    def snapshot_installed(self, snapshot: SnapshotId) -> None:
        super().snapshot_installed(snapshot)
        self._metadata.snapshot_installed(snapshot)


class Member:
    """One node of the quorum."""

    def __init__(
        self,
        folder: Path,
        node_id: int,
        port: int,
        settings: dict[str, str],
        prepare: "Callable[[Member], None] | None" = None,
    ) -> None:
        self.id, self.port = node_id, port
        clock, entropy = SystemClock(), SystemEntropy()
        self.disk = DataDirectory(
            str(folder),
            files=OsFiles(),
            clock=clock,
            entropy=entropy,
            write_workers=LoopWorkers(1, "write"),
            sync_workers=LoopWorkers(1, "sync"),
            upkeep_workers=LoopWorkers(1, "upkeep"),
            read_workers=LoopWorkers(1, "read"),
        )
        timers = LoopTimers(asyncio.get_running_loop())
        self.peers = TcpPeers()
        self.broker = Broker(
            node_id,
            "",
            "127.0.0.1",
            port,
            clock,
            timers,
            self.disk,
            entropy,
            Settings(settings),
            controller_endpoints=(Endpoint(LISTENER, "127.0.0.1", port),),
            controller_listeners=frozenset({LISTENER}),
            peers=self.peers,
        )
        # ApiVersions reports the features of an image, which nothing maintains here.
        self.broker.metadata = cast(MetadataLog, SimpleNamespace(image=MetadataImage()))
        self.listener = Listener(Pipeline(self.broker), LISTENER)
        self.events = Events()
        self._prepare = prepare
        self.quorum: QuorumLog
        self._is_ended = False
        _cleanup.get().push_async_callback(self.kill)

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, self.disk.directory_id())

    @property
    def voter(self) -> Voter:
        return Voter(self.key, (raft.Endpoint(LISTENER, "127.0.0.1", self.port),))

    @property
    def has_log(self) -> bool:
        return METADATA_PARTITION in self.disk.known_logs()

    def found(self) -> None:
        """Write the first snapshot of a dynamic quorum, whose only voter is this node."""
        folder = Path(self.disk.directory_path()) / str(METADATA_PARTITION)
        folder.mkdir()
        batches = bootstrap_snapshot(Voters([self.voter]), NOW_MS)
        (folder / f"{0:020d}-{0:010d}.checkpoint").write_bytes(b"".join(batches))

    async def start(self) -> None:
        self.quorum = self.broker.quorum = await QuorumLog.open(self.broker)
        if self._prepare is not None:
            broker = self.broker
            broker.metadata = MetadataLog(self.quorum, self.disk, broker.clock, broker.settings)
            await broker.metadata.load()
            self.events = MetadataEvents(broker.metadata)
            self._prepare(self)
        self.listener.listen("127.0.0.1", self.port)
        self.quorum.start(self.events)

    async def stop(self) -> None:
        """A controlled stop."""
        await self.quorum.close()
        await self._end()

    async def kill(self) -> None:
        """Vanish without a word to the others; what was written stays."""
        if not self._is_ended:
            if hasattr(self, "quorum"):
                self.quorum._stop()
            await self._end()

    async def _end(self) -> None:
        self._is_ended = True
        await self.listener.close(grace_seconds=0)
        self.peers.close()
        self.disk.close()

    def append(self, *values: bytes) -> int:
        batch = build_batch([Record(0, NOW_MS, None, value) for value in values])
        return self.quorum.append(batch, self.quorum.epoch)

    async def values(self) -> list[bytes]:
        """The committed records that are not control records."""
        found: list[bytes] = []
        offset = self.quorum.log.log_start_offset
        while offset < self.quorum.high_watermark:
            for batch in await settled(self.quorum.read_batches(offset, 1 << 20)):
                for record in iterate_records(batch):
                    if record.key is None and record.value is not None:
                        found.append(record.value)
                    offset = record.offset + 1
        return found

    def write_snapshot(self, end_offset: int) -> SnapshotId:
        snapshot = self.quorum.snapshot_id(end_offset)
        header = snapshot_header(NOW_MS, snapshot.epoch, *self.quorum.voters_at(end_offset))
        footer = snapshot_footer(NOW_MS, snapshot.epoch, 1)
        self.quorum.snapshots.write(snapshot, [header, footer])
        self.quorum.snapshot_written(snapshot)
        return snapshot


class QuorumWorld:
    """Several members, started and stopped by a test."""

    def __init__(
        self, folder: Path, voters: int, observers: int = 0, *, is_dynamic: bool = False, **settings: str
    ) -> None:
        self._folder = folder
        self._is_dynamic = is_dynamic
        self.ports = {node_id: free_port() for node_id in range(1, voters + observers + 1)}
        self._voters = range(1, voters + 1)
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.members: dict[int, Member] = {}
        self.prepare: Callable[[Member], None] | None = None
        """If it is set, members have an image of the metadata, and this is called before each starts."""

    def settings(self, node_id: int) -> dict[str, str]:
        voters = ",".join(f"{each}@127.0.0.1:{self.ports[each]}" for each in self._voters)
        if self._is_dynamic:
            first = self.ports[1]
            quorum = {"controller.quorum.bootstrap.servers": f"127.0.0.1:{first}"}
        else:
            quorum = {"controller.quorum.voters": voters}
        is_controller = self._is_dynamic or node_id in self._voters
        return {
            "node.id": str(node_id),
            "process.roles": "controller" if is_controller else "broker",
            "controller.listener.names": LISTENER,
            **quorum,
            **self._settings,
        }

    async def __aenter__(self) -> "QuorumWorld":
        for node_id in self.ports:
            await self.start(node_id)
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in list(self.members.values()):
            await member.kill()

    async def start(self, node_id: int) -> Member:
        folder, port = self._folder / str(node_id), self.ports[node_id]
        member = Member(folder, node_id, port, self.settings(node_id), self.prepare)
        if self._is_dynamic and node_id == 1 and not member.has_log:
            member.found()
        await member.start()
        self.members[node_id] = member
        return member

    async def kill(self, member: Member) -> None:
        await self.members.pop(member.id).kill()

    async def stop(self, member: Member) -> None:
        await self.members.pop(member.id).stop()

    async def leader(self) -> Member:
        """The leader, once it may append and all others follow it."""

        def found() -> Member | None:
            for member in self.members.values():
                if member.quorum.is_leader and member.quorum.epoch in member.events.elected_epochs:
                    epochs = {(each.quorum.leader_id, each.quorum.epoch) for each in self.members.values()}
                    return member if epochs == {(member.id, member.quorum.epoch)} else None
            return None

        await until(lambda: found() is not None)
        member = found()
        assert member is not None
        return member

    async def committed(self, end_offset: int) -> None:
        """All members know that everything below is committed."""
        await until(lambda: all(each.quorum.high_watermark >= end_offset for each in self.members.values()))


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a coroutine. Members that it leaves running are killed, also when it fails."""

    async def closing(*args: P.args, **kwargs: P.kwargs) -> None:
        async with AsyncExitStack() as stack:
            _cleanup.set(stack)
            await test(*args, **kwargs)

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(closing(*args, **kwargs))

    return run


async def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


def refused_reads(cause: Exception) -> Callable[[int, int], Promise[Sequence[memoryview]]]:
    """Reads of the metadata log that fail for this reason."""

    def read_batches(offset: int, max_bytes: int) -> Promise[Sequence[memoryview]]:
        promise: Promise[Sequence[memoryview]] = Promise()
        error = StorageFailed(str(cause))
        error.__cause__ = cause
        promise.fail(error)
        return promise

    return read_batches
