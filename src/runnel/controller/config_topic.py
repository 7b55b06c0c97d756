"""Every topic setting of Kafka 4.3, and Runnel's own `flush.policy`."""

from runnel.controller.config_types import (
    LONG_MAX,
    ConfigType,
    at_least,
    between,
    between_or,
    one_of,
    some_of,
    table,
    throttled_replicas,
)
from runnel.controller.config_types import inherited_config as _topic

BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
DOUBLE, LIST = ConfigType.DOUBLE, ConfigType.LIST

COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
FLUSH_POLICIES = ("never", "interval", "commit")


TOPIC_CONFIGS = table(
    _topic(
        "cleanup.policy", LIST, "delete", some_of("compact", "delete"), "log.cleanup.policy",
        "How old records go: delete drops whole segments by age and size, compact keeps the newest "
        "record of each "
        "key. Both may be given, as compact,delete.",
    ),
    _topic(
        "compression.type", STRING, "producer", one_of(*COMPRESSIONS), "compression.type",
        "The codec that batches are stored in. With producer they stay as they were sent; any other value "
        "recompresses batches that came in another codec.",
    ),
    _topic(
        "compression.gzip.level", INT, -1, between_or(1, 9, -1), "compression.gzip.level",
        "How hard gzip tries, 1 to 9, when compression.type is gzip; -1 leaves it to the library.",
    ),
    _topic(
        "compression.lz4.level", INT, 9, between(1, 17), "compression.lz4.level",
        "How hard lz4 tries, 1 to 17, when compression.type is lz4.",
    ),
    _topic(
        "compression.zstd.level", INT, 3, between(-131072, 22), "compression.zstd.level",
        "How hard zstd tries, up to 22, when compression.type is zstd.",
    ),
    _topic(
        "delete.retention.ms", LONG, 86400000, at_least(0), "log.cleaner.delete.retention.ms",
        "How long a compacted topic still shows the record that deleted a key. A consumer that "
        "starts from the "
        "beginning must reach the end within this time to be sure of seeing every deletion.",
    ),
    _topic(
        "file.delete.delay.ms", LONG, 60000, at_least(0), "log.segment.delete.delay.ms",
        "How long a segment that retention has dropped stays on the disk, for readers that are still in it.",
    ),
    _topic(
        "flush.messages", LONG, LONG_MAX, at_least(1), "log.flush.interval.messages",
        "Force the log to the disk each time this many records have been written. 1 makes every "
        "acknowledgement "
        "wait for the disk, as flush.policy=commit does.",
    ),
    _topic(
        "flush.ms", LONG, LONG_MAX, at_least(0), "log.flush.interval.ms log.flush.scheduler.interval.ms",
        "Force the log to the disk at least this often.",
    ),
    _topic(
        "flush.policy", STRING, "never", one_of(*FLUSH_POLICIES), "log.flush.policy",
        "When records must be on the disk. never: the operating system writes them in its own time, "
        "as Kafka does. "
        "interval: every flush.ms, or every second if that is not set. commit: an acknowledgement "
        "waits for the disk, "
        "all that wait share one flush, and nobody reads a record that a power cut could still take.",
    ),
    _topic(
        "follower.replication.throttled.replicas", LIST, "", throttled_replicas, "",
        "Which replicas are slowed down while they catch up: partition:broker pairs, or * for all.",
    ),
    _topic(
        "index.interval.bytes", INT, 4096, at_least(0), "log.index.interval.bytes",
        "How many bytes of records lie between two entries of the offset index. Fewer bytes make the "
        "index larger "
        "and the first read of a fetch shorter.",
    ),
    _topic(
        "leader.replication.throttled.replicas", LIST, "", throttled_replicas, "",
        "Which replicas are slowed down while others copy from them: partition:broker pairs, or * for all.",
    ),
    _topic(
        "local.retention.bytes", LONG, -2, at_least(-2), "log.local.retention.bytes",
        "How much of a tiered partition stays on the local disk; -2 means as much as retention.bytes.",
    ),
    _topic(
        "local.retention.ms", LONG, -2, at_least(-2), "log.local.retention.ms",
        "How long a tiered partition stays on the local disk; -2 means as long as retention.ms.",
    ),
    _topic(
        "max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), "log.cleaner.max.compaction.lag.ms",
        "The longest that a record may wait for compaction, however little the log has changed.",
    ),
    _topic(
        "max.message.bytes", INT, 1048588, at_least(0), "message.max.bytes",
        "The largest record batch that is taken, measured as it is stored, compressed or not.",
    ),
    _topic(
        "message.timestamp.after.max.ms", LONG, 3600000, at_least(0), "log.message.timestamp.after.max.ms",
        "How far ahead of the broker's clock a producer's timestamp may be. Not looked at with "
        "LogAppendTime.",
    ),
    _topic(
        "message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0), "log.message.timestamp.before.max.ms",
        "How far behind the broker's clock a producer's timestamp may be. Not looked at with LogAppendTime.",
    ),
    _topic(
        "message.timestamp.type", STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"),
        "log.message.timestamp.type",
        "Whose clock stamps a record: CreateTime keeps the producer's, LogAppendTime writes the "
        "broker's over it.",
    ),
    _topic(
        "min.cleanable.dirty.ratio", DOUBLE, 0.5, between(0, 1), "log.cleaner.min.cleanable.ratio",
        "The share of a compacted log that must be new before it is compacted again. A smaller share "
        "wastes less "
        "space and works harder.",
    ),
    _topic(
        "min.compaction.lag.ms", LONG, 0, at_least(0), "log.cleaner.min.compaction.lag.ms",
        "How long a record of a compacted topic is safe from compaction.",
    ),
    _topic(
        "min.insync.replicas", INT, 1, at_least(1), "min.insync.replicas",
        "How many replicas must hold a record before acks=all is answered. With fewer in sync, such "
        "writes are "
        "refused instead of being less safe than they were asked to be.",
    ),
    _topic(
        "preallocate", BOOLEAN, "false", None, "log.preallocate",
        "Without effect here: segment files grow as records come.",
    ),
    _topic(
        "remote.log.copy.disable", BOOLEAN, "false", None, "",
        "Stop copying a tiered topic to the object store; what is there stays readable.",
    ),
    _topic(
        "remote.log.delete.on.disable", BOOLEAN, "false", None, "",
        "Delete what is in the object store when tiering is switched off for the topic.",
    ),
    _topic(
        "remote.storage.enable", BOOLEAN, "false", None, "",
        "Keep older segments of the topic in an object store.",
    ),
    _topic(
        "retention.bytes", LONG, -1, None, "log.retention.bytes",
        "How large a partition may grow before its oldest segments are deleted; -1 is no limit. The "
        "limit is per "
        "partition, so a topic takes up to this times its partitions.",
    ),
    _topic(
        "retention.ms", LONG, 604800000, at_least(-1),
        "log.retention.ms log.retention.minutes log.retention.hours",
        "How long records are kept before their segment is deleted; -1 is for ever. Consumers have "
        "this long to "
        "read what was written.",
    ),
    _topic(
        "segment.bytes", INT, 1073741824, at_least(1048576), "log.segment.bytes",
        "How large a segment file grows before the next one is started. Retention and compaction "
        "work on whole "
        "segments, so smaller ones follow the limits more closely and make more files.",
    ),
    _topic(
        "segment.index.bytes", INT, 10485760, at_least(4), "log.index.size.max.bytes",
        "How large the offset index of one segment may grow; a full index starts the next segment.",
    ),
    _topic(
        "segment.jitter.ms", LONG, 0, at_least(0), "log.roll.jitter.ms log.roll.jitter.hours",
        "Up to this much is taken off segment.ms, by chance, so that partitions do not all start "
        "segments at once.",
    ),
    _topic(
        "segment.ms", LONG, 604800000, at_least(1), "log.roll.ms log.roll.hours",
        "How old a segment grows before the next one is started even if it is not full, so that "
        "retention and "
        "compaction can reach its records.",
    ),
    _topic(
        "unclean.leader.election.enable", BOOLEAN, "false", None, "unclean.leader.election.enable",
        "Let a replica that is not in sync become leader when no other is left. Records that it "
        "lacks are lost.",
    ),
)  # fmt: skip

DURATIONS_MS: dict[str, int] = {
    "log.retention.minutes": 60_000,
    "log.retention.hours": 3_600_000,
    "log.roll.hours": 3_600_000,
    "log.roll.jitter.hours": 3_600_000,
}
"""Milliseconds in one unit of the synonyms that are not in milliseconds themselves."""
