"""Names of the directories and files of a log, as in Kafka."""

from runnel.model.ids import SnapshotId, TopicPartition, id_text

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
ABORTED = ".txnindex"
SNAPSHOT = ".snapshot"
KEY = ".key"
CHECKPOINT = ".checkpoint"
PART = ".part"
DELETED = ".deleted"
CLEANED = ".cleaned"
TEMPORARY = ".tmp"
REMOVED_FOLDER = "-delete"
RECREATED = ".recreated"

EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
COMPACTION_SWAP = "compaction-swap"
CLEANER_CHECKPOINT = "cleaner-offset"

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
MANIFEST = "clean-shutdown-manifest"
PROPERTIES = "meta.properties"
LAST_BOOT = "last-boot"
MASTERS = "encryption-masters"
LOCK = ".lock"

_DIGITS = 20
_EPOCH_DIGITS = 10


def offset_name(offset: int, suffix: str) -> str:
    """A file name with an offset in twenty digits, so that names sort by offset."""
    return f"{offset:0{_DIGITS}d}{suffix}"


def offset_of(name: str, suffix: str) -> int | None:
    """The offset in the name of a file with this suffix, or None."""
    digits = name.removesuffix(suffix)
    if len(digits) != _DIGITS or digits == name or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits)


def snapshot_name(snapshot: tuple[int, int]) -> str:
    """The file name of a snapshot: its end offset and the epoch of its last record."""
    end_offset, epoch = snapshot
    return f"{end_offset:0{_DIGITS}d}-{epoch:0{_EPOCH_DIGITS}d}{CHECKPOINT}"


def snapshot_of(name: str) -> SnapshotId | None:
    """The snapshot with this file name, or None."""
    end_offset, dash, epoch = name.removesuffix(CHECKPOINT).partition("-")
    is_number = (end_offset + epoch).isascii() and (end_offset + epoch).isdigit()
    if not dash or not is_number or not name.endswith(CHECKPOINT):
        return None
    if len(end_offset) != _DIGITS or len(epoch) != _EPOCH_DIGITS:
        return None
    return SnapshotId(int(end_offset), int(epoch))


def recreated_name(partition: TopicPartition, topic_id: bytes) -> str:
    """The mark of a recreated log, of whose predecessor checkpoint files may have entries."""
    return f"{id_text(topic_id)}-{partition.partition}{RECREATED}"


def partition_of(folder: str) -> TopicPartition | None:
    """The partition of a directory name, or None."""
    topic, dash, number = folder.rpartition("-")
    if not topic or not dash or not (number.isascii() and number.isdigit()) or str(int(number)) != number:
        return None
    return TopicPartition(topic, int(number))
