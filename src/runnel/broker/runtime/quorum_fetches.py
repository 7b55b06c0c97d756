"""How the leader of the quorum serves fetches of the metadata log and of its snapshots.

A fetch without anything new waits: until the log grows, the high watermark advances (KIP-1166), this node
ceases to lead, or its time is over.
"""

from typing import TYPE_CHECKING

from runnel.broker.runtime.blocking import Job
from runnel.broker.runtime.promise import MaybePromise, settled
from runnel.broker.runtime.waiting import LongPoll
from runnel.model.errors import ApiError, ErrorCode, StorageFailed
from runnel.ports.disk import NotResident, Slice
from runnel.ports.service import Session
from runnel.raft.positions import BOOTSTRAP_SNAPSHOT
from runnel.raft.values import Fetch, FetchReply, FetchSnapshot, SnapshotReply

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

Served = tuple[FetchReply, Slice | None]
"""A reply, and the records that belong to it."""


class QuorumFetch:
    """A fetch that is tried again when there may be more to read."""

    def __init__(self, broker: "Broker", fetch: Fetch, max_wait_ms: int, max_bytes: int) -> None:
        self._broker = broker
        self._quorum = broker.quorum
        self._fetch = fetch
        self._max_bytes = max(max_bytes, 0)
        self._deadline_ms = broker.clock.monotonic_ms() + max_wait_ms

    def serve(self, session: Session) -> MaybePromise[Served]:
        """The reply, perhaps later."""
        found = self.attempt(self._deadline_ms <= self._broker.clock.monotonic_ms())
        if found is not None:
            return found
        poll = LongPoll[Served](self._broker.waiting, session, self.attempt)
        wait_ms = max(0, self._deadline_ms - self._broker.clock.monotonic_ms())
        poll.start([self._quorum.replicated], wait_ms)
        return poll

    def attempt(self, is_expired: bool, *, may_block: bool = False) -> MaybePromise[Served] | None:
        """The reply; None if there is nothing to report yet."""
        quorum, fetch = self._quorum, self._fetch
        reply = quorum.core.fetch_requested(fetch, self._broker.clock.monotonic_ms())
        if reply.error is not ErrorCode.NONE or reply.diverging is not None or reply.snapshot is not None:
            return quorum.answer((reply, None))
        found: Slice | None = None
        if fetch.offset < quorum.log.written_offset:
            try:
                found = quorum.replicated.read(
                    fetch.offset,
                    self._max_bytes,
                    quorum.log.written_offset,
                    at_least_one=True,
                    may_block=may_block,
                )
            except NotResident as cold:
                return self._broker.run(self._load(cold))
            except ApiError as error:
                reply.error = error.error
        elif not is_expired and reply.high_watermark <= fetch.high_watermark:
            return None
        return quorum.answer((reply, found))

    async def _load(self, cold: NotResident) -> Served:
        await settled(self._quorum.replicated.load(cold.load))
        found = self.attempt(True, may_block=True)
        assert found is not None
        return await settled(found)


async def serve_snapshot(broker: "Broker", fetch: FetchSnapshot, max_bytes: int) -> SnapshotReply:
    """A page of a snapshot."""
    quorum = broker.quorum
    state = quorum.core.snapshot_requested(fetch, broker.clock.monotonic_ms())
    reply = SnapshotReply(state.error, state.epoch, state.leader_id, state.endpoints, fetch.snapshot)
    if reply.error is ErrorCode.NONE:
        try:
            await _read_page(broker, fetch, max_bytes, reply)
        except ApiError as error:
            reply.error = error.error
    return await settled(quorum.answer(reply))


async def _read_page(broker: "Broker", fetch: FetchSnapshot, max_bytes: int, reply: SnapshotReply) -> None:
    missing = ApiError(ErrorCode.SNAPSHOT_NOT_FOUND, f"there is no snapshot {fetch.snapshot}")
    if fetch.snapshot == BOOTSTRAP_SNAPSHOT:
        raise missing
    # Within what the operating system takes as a position.
    store, position = broker.quorum.snapshots, min(max(fetch.position, 0), 2**62)
    read = Job(lambda: store.read_page(fetch.snapshot, position, max(max_bytes, 1)))
    try:
        data, size_bytes = await broker.disk.run_blocking(read)
    except FileNotFoundError:
        raise missing from None
    if not 0 <= fetch.position < size_bytes:
        raise ApiError(ErrorCode.POSITION_OUT_OF_RANGE, f"the snapshot has {size_bytes} bytes")
    if not data:
        raise StorageFailed("the snapshot cannot be read")
    reply.data, reply.size_bytes, reply.position = memoryview(data), size_bytes, fetch.position
