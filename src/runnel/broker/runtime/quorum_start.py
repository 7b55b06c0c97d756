"""How a node's part of the quorum is opened: its state, its voters, and the log after its newest snapshot."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from runnel.batch.errors import CorruptBatch
from runnel.batch.header import read_header
from runnel.broker.runtime.blocking import Job
from runnel.broker.runtime.promise import Promise, settled
from runnel.broker.runtime.quorum_view import QuorumLogView
from runnel.controller.config_broker_cluster import (
    CONTROLLER_ROLE,
    parse_bootstrap_servers,
    parse_voters,
)
from runnel.controller.image import BadMetadata
from runnel.controller.settings import Settings
from runnel.log.epochs import NO_EPOCH
from runnel.model.errors import ApiError, StorageFailed
from runnel.model.ids import SnapshotId
from runnel.model.log_config import FOREVER, FlushPolicy, LogConfig
from runnel.ports.disk import Disk, PartitionLog, Snapshots, StateFiles
from runnel.raft.control import read_snapshot_voters, voter_changes
from runnel.raft.election_state import QUORUM_STATE, BadQuorumState, decode_state
from runnel.raft.quorum import Quorum
from runnel.raft.values import ElectionState, Endpoint, Peer, QuorumTiming, ReplicaKey
from runnel.raft.voters import Voter, VoterHistory, Voters, static_voters
from runnel.wire import MalformedMessage

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

logger = logging.getLogger("runnel.broker")

SCAN_BYTES = 1024 * 1024
"""How much of the log is searched for voters before other tasks run."""
FIRST_BOOTSTRAP_ID = -2
"""The ids of bootstrap servers, whose node ids are unknown, count down from here; -1 is no node."""


@dataclass(frozen=True, slots=True)
class Membership:
    """This node as a member of the quorum, according to its settings."""

    node: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    listener: str
    configured: Voters
    bootstrap: tuple[Peer, ...]
    can_vote: bool
    joins: bool
    timing: QuorumTiming
    request_timeout_ms: int


def membership_of(broker: "Broker") -> Membership:
    """The membership that the settings describe. Without any, the node is a quorum of one."""
    settings = broker.settings
    roles = settings.words("process.roles")
    endpoints = tuple(Endpoint(each.name, each.host, each.port) for each in broker.controller_endpoints)
    names = settings.words("controller.listener.names")
    listener = names[0].upper() if names else broker.listener
    addresses = parse_voters(settings.words("controller.quorum.voters"))
    servers = parse_bootstrap_servers(settings.words("controller.quorum.bootstrap.servers"))
    node = ReplicaKey(broker.node_id, broker.disk.directory_id())
    if addresses:
        configured = static_voters(addresses, listener)
    elif servers:
        configured = Voters()
    else:
        configured = Voters([Voter(ReplicaKey(node.id), endpoints)])
    bootstrap = [*servers, *(address for address in addresses.values() if address not in servers)]
    return Membership(
        node=node,
        endpoints=endpoints,
        listener=listener,
        configured=configured,
        bootstrap=tuple(Peer(FIRST_BOOTSTRAP_ID - number, *each) for number, each in enumerate(bootstrap)),
        can_vote=not roles or CONTROLLER_ROLE in roles,
        joins=settings.bool("controller.quorum.auto.join.enable"),
        timing=_timing(settings),
        request_timeout_ms=settings.int("controller.quorum.request.timeout.ms"),
    )


def _timing(settings: Settings) -> QuorumTiming:
    prefix = "controller.quorum."
    return QuorumTiming(
        election_timeout_ms=max(settings.int(prefix + "election.timeout.ms"), 1),
        fetch_timeout_ms=max(settings.int(prefix + "fetch.timeout.ms"), 1),
        retry_backoff_ms=max(settings.int(prefix + "retry.backoff.ms"), 1),
        election_backoff_max_ms=settings.int(prefix + "election.backoff.max.ms"),
        unreachable_election_ms=settings.int(prefix + "unreachable.election.delay.ms"),
        fetch_max_bytes=settings.int(prefix + "fetch.max.bytes"),
        snapshot_max_bytes=settings.int(prefix + "fetch.snapshot.max.bytes"),
    )


def core_of(
    membership: Membership, view: QuorumLogView, history: VoterHistory, draw: Callable[[int], int]
) -> Quorum:
    """The core of this member."""
    return Quorum(
        membership.node,
        membership.endpoints,
        membership.listener,
        membership.timing,
        view,
        history,
        draw,
        bootstrap=membership.bootstrap,
        can_vote=membership.can_vote,
        joins=membership.joins,
    )


def metadata_log_config(settings: Settings, *, can_vote: bool) -> LogConfig:
    """The settings of the metadata log, which only snapshots shorten.

    What a voter acknowledges is durable. The log of a broker is a copy, which it can fetch again.
    """
    return LogConfig(
        segment_bytes=settings.int("metadata.log.segment.bytes"),
        segment_ms=FOREVER,
        retention_ms=-1,
        retention_bytes=-1,
        max_message_bytes=2**31 - 1,
        flush_policy=FlushPolicy.COMMIT if can_vote else FlushPolicy.NEVER,
    )


async def load_state(disk: Disk, files: StateFiles) -> ElectionState | None:
    """The stored epoch and vote of this node. BadMetadata if they cannot be read."""
    data = await disk.run_blocking(Job(lambda: files.read(QUORUM_STATE)))
    if data is None:
        return None
    try:
        return decode_state(data)
    except BadQuorumState as error:
        # To vote again in an epoch could elect two leaders.
        raise BadMetadata(f"{disk.directory_path()}: {error}") from error


async def load_snapshots(
    disk: Disk, store: Snapshots, log: PartitionLog, view: QuorumLogView, history: VoterHistory
) -> None:
    """Find the newest complete snapshot, and its voters; the log begins there at the latest."""
    usable: list[SnapshotId] = []
    for snapshot in await disk.run_blocking(Job(store.ids)):
        try:
            voters = await disk.run_blocking(Job(partial(_read_voters, store, snapshot)))
        except (CorruptBatch, MalformedMessage, StorageFailed) as error:
            logger.error("the metadata snapshot at %d cannot be used: %s", snapshot.end_offset, error)
            continue
        if not usable:
            history.restart(snapshot.end_offset, *voters)
        usable.append(snapshot)
    view.set_snapshots(usable)
    if usable and not _continues(log, usable[0]):
        # The node stopped after it received the snapshot and before its log was replaced, or lost its log.
        await restart_log(log, usable[0].end_offset)


def _continues(log: PartitionLog, snapshot: SnapshotId) -> bool:
    """Does the log have what follows the snapshot, and not records that others have replaced?"""
    end_offset = snapshot.end_offset
    if end_offset <= log.log_start_offset:
        return True
    return end_offset <= log.written_offset and log.epoch_of(end_offset - 1) in (NO_EPOCH, snapshot.epoch)


def _read_voters(store: Snapshots, snapshot: SnapshotId) -> tuple[int, Voters | None]:
    return read_snapshot_voters(store.read(snapshot))


async def restart_log(log: PartitionLog, offset: int) -> None:
    """Remove all records; the log continues at this offset. Raises ApiError."""
    restarted: Promise[None] = Promise()

    def done(error: ApiError | None) -> None:
        restarted.resolve(None) if error is None else restarted.fail(error)

    log.restart_at(offset, done)
    await settled(restarted)


async def scan_voters(disk: Disk, log: PartitionLog, history: VoterHistory, start_offset: int) -> None:
    """Find the changes of voters in the log from an offset on. BadMetadata if it is damaged."""
    offset = max(start_offset, log.log_start_offset)
    while offset < log.written_offset:
        batches: Sequence[memoryview] = await disk.run_blocking(
            log.read_batches(offset, SCAN_BYTES, log.written_offset)
        )
        try:
            for batch in batches:
                for change in voter_changes(batch):
                    if change.offset >= start_offset:
                        change.apply(history)
        except (CorruptBatch, MalformedMessage) as error:
            raise BadMetadata(f"the metadata log is damaged: {error}") from error
        offset = read_header(batches[-1]).next_offset
        await asyncio.sleep(0)
