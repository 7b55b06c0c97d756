"""Formatting of data directories, as kafka-storage.sh does it.

| file                                    | contents                                                       |
|-----------------------------------------|----------------------------------------------------------------|
| bootstrap.checkpoint                    | features and users, written to the log by the first controller |
| __cluster_metadata-0/0…0-0…0.checkpoint | the voters of a dynamic quorum                                 |
| meta.properties                         | cluster id, node id, directory id; written last                |
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from runnel.batch.build import build_batch
from runnel.batch.errors import CorruptBatch
from runnel.batch.records import Record
from runnel.broker.runtime.quorum_log import METADATA_PARTITION
from runnel.controller import values as controller
from runnel.controller.image import BadMetadata
from runnel.controller.record_versions import encode_records
from runnel.controller.snapshot_batches import read_snapshot
from runnel.disk.atomic import make_durable_folder, replace_file
from runnel.disk.identity import check_identity, read_identity, store_identity
from runnel.disk.snapshots import SnapshotFiles, cut_batches
from runnel.model.ids import id_from_text
from runnel.ports.disk import Identity
from runnel.ports.files import Files
from runnel.raft.control import bootstrap_snapshot, snapshot_footer, snapshot_header
from runnel.raft.positions import BOOTSTRAP_SNAPSHOT
from runnel.raft.values import Endpoint, ReplicaKey
from runnel.raft.voters import Voter, Voters
from runnel.schemas.metadata import FeatureLevelRecord, MetadataRecord, UserScramCredentialRecord
from runnel.server.layers import BadSettings
from runnel.wire import MalformedMessage

BOOTSTRAP = "bootstrap.checkpoint"


@dataclass(frozen=True, slots=True)
class Format:
    """The contents of a new data directory."""

    cluster_id: str
    node_id: int
    levels: Mapping[str, int]
    """The features of the cluster."""
    voters: Voters | None = None
    """The first voters of a dynamic quorum."""
    users: tuple[UserScramCredentialRecord, ...] = ()
    """The first users of the cluster."""


class AlreadyFormatted(Exception):
    """The directory has a meta.properties."""


def format_directory(files: Files, folder: str, plan: Format, new_id: bytes, now_ms: int) -> None:
    """Write the files of a new node; durable on return. Raises AlreadyFormatted and BadDirectory."""
    identity = read_identity(files, folder)
    if identity is not None:
        check_identity(identity, folder, plan.cluster_id, plan.node_id)
        raise AlreadyFormatted(folder)
    make_durable_folder(files, folder)
    levels = [FeatureLevelRecord(name, level) for name, level in plan.levels.items()]
    write_bootstrap(files, folder, [*levels, *plan.users], now_ms)
    directory_id = new_id
    if plan.voters is not None:
        own = plan.voters.get(plan.node_id)
        directory_id = new_id if own is None else own.key.directory_id
        write_voters(files, folder, plan.voters, now_ms)
    store_identity(files, folder, Identity(directory_id, plan.cluster_id, plan.node_id))


def write_voters(files: Files, folder: str, voters: Voters, now_ms: int) -> None:
    """Write the checkpoint with the first voters of a dynamic quorum."""
    path = f"{folder}/{METADATA_PARTITION}"
    make_durable_folder(files, path)
    SnapshotFiles(files, path).write(BOOTSTRAP_SNAPSHOT, bootstrap_snapshot(voters, now_ms))


def write_bootstrap(files: Files, folder: str, records: Iterable[MetadataRecord], now_ms: int) -> None:
    """Write bootstrap.checkpoint."""
    replace_file(files, folder, BOOTSTRAP, b"".join(_bootstrap_batches(list(records), now_ms)), sync=True)


def read_bootstrap(files: Files, folder: str) -> list[MetadataRecord] | None:
    """The records of bootstrap.checkpoint, None if there is none. Raises BadMetadata."""
    try:
        data = files.read(f"{folder}/{BOOTSTRAP}")
    except FileNotFoundError:
        return None
    try:
        return [record for batch in read_snapshot(cut_batches(memoryview(data))) for record in batch]
    except (CorruptBatch, MalformedMessage) as error:
        raise BadMetadata(f"{folder}/{BOOTSTRAP} is damaged ({error}): format the directory again") from error


def _bootstrap_batches(records: list[MetadataRecord], now_ms: int) -> Iterator[bytearray]:
    yield snapshot_header(now_ms, 0, 0, None)
    level = next((r.feature_level for r in records if isinstance(r, FeatureLevelRecord)), 0)
    values = [Record(0, now_ms, None, value) for value in encode_records(records, level)]
    yield build_batch(values, base_offset=1, leader_epoch=0)
    yield snapshot_footer(now_ms, 0, 1 + len(values))


def standalone(node_id: int, directory_id: bytes, endpoints: Iterable[controller.Endpoint]) -> Voters:
    """A quorum of one voter."""
    listeners = tuple(Endpoint(each.name, each.host, each.port) for each in endpoints)
    return Voters([Voter(ReplicaKey(node_id, directory_id), listeners)])


def parse_initial_controllers(text: str, listener: str) -> Voters:
    """The voters of --initial-controllers: id@host:port:directory, separated by commas."""
    voters: dict[int, Voter] = {}
    for entry in text.split(","):
        node_id, _, rest = entry.strip().partition("@")
        address, _, directory = rest.rpartition(":")
        host, _, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        try:
            voter = Voter(
                ReplicaKey(int(node_id), id_from_text(directory)), (Endpoint(listener, host, int(port)),)
            )
        except ValueError:
            voter = None
        if voter is None or not host or not 0 < int(port) <= 65535 or int(node_id) < 0:
            raise BadSettings(
                f"--initial-controllers: {entry.strip()!r} is not of the form id@host:port:directory, "
                "such as 1@localhost:9093:JEXY6aqzQY-32P5TStzaFg"
            )
        if voter.key.id in voters:
            raise BadSettings(f"--initial-controllers: node {voter.key.id} is listed twice")
        voters[voter.key.id] = voter
    return Voters(voters.values())
