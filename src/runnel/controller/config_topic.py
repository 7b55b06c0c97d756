"""The topic configs of Kafka 4.3, and Runnel's own: `dedup.*`, `encryption.*`, `flush.policy`, `runnel.*`."""

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
from runnel.model.limits import DEDUP_KEYS_MAX

BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
DOUBLE, LIST = ConfigType.DOUBLE, ConfigType.LIST

COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
FLUSH_POLICIES = ("never", "interval", "commit")
SUBJECT_NAME_STRATEGIES = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")


TOPIC_CONFIGS = table(
    _topic(
        "cleanup.policy", LIST, "delete", some_of("compact", "delete"), "log.cleanup.policy",
        "How old records are removed: delete removes segments by age and size, compact retains the latest "
        "record of each key. Both can be combined, as compact,delete.",
    ),
    _topic(
        "compression.type", STRING, "producer", one_of(*COMPRESSIONS), "compression.type",
        "The compression codec of stored batches. producer retains the codec of the producer; with any other "
        "value, batches in another codec are recompressed.",
    ),
    _topic(
        "compression.gzip.level", INT, -1, between_or(1, 9, -1), "compression.gzip.level",
        "The compression level if compression.type is gzip, 1 to 9; -1 for the default of the library.",
    ),
    _topic(
        "compression.lz4.level", INT, 9, between(1, 17), "compression.lz4.level",
        "The compression level if compression.type is lz4, 1 to 17.",
    ),
    _topic(
        "compression.zstd.level", INT, 3, between(-131072, 22), "compression.zstd.level",
        "The compression level if compression.type is zstd, up to 22.",
    ),
    _topic(
        "dedup.keys.max", INT, 100_000, between(1, DEDUP_KEYS_MAX), "",
        "How many idempotency keys a partition remembers, about 400 bytes each. A record with a further key "
        "is refused with THROTTLING_QUOTA_EXCEEDED until the window of another one has passed.",
    ),
    _topic(
        "dedup.window.ms", LONG, 0, at_least(0), "",
        "How long a partition remembers the idempotency keys of its records, which are in their header "
        "runnel-idempotency-key: a record that is sent again with its key is acknowledged with the offset "
        "of the first, and not written again. 0 turns this off.",
    ),
    _topic(
        "delete.retention.ms", LONG, 86400000, at_least(0), "log.cleaner.delete.retention.ms",
        "How long tombstones are retained in a compacted topic. A consumer that starts at offset 0 must "
        "reach the end within this time to see all deletions.",
    ),
    _topic(
        "encryption.enable", BOOLEAN, "false", None, "log.encryption.enable",
        "Whether new segments are encrypted on disk. Each replica encrypts with keys of its own, which its "
        "master key protects: a broker without one rejects records for the topic.",
    ),
    _topic(
        "file.delete.delay.ms", LONG, 60000, at_least(0), "log.segment.delete.delay.ms",
        "How long the files of a deleted segment are kept for readers that still use them.",
    ),
    _topic(
        "flush.messages", LONG, LONG_MAX, at_least(1), "log.flush.interval.messages",
        "The number of records after which the log is flushed to disk. With 1, acknowledgements wait for "
        "an fsync, as with flush.policy=commit.",
    ),
    _topic(
        "flush.ms", LONG, LONG_MAX, at_least(0), "log.flush.interval.ms log.flush.scheduler.interval.ms",
        "The maximum time before the log is flushed to disk.",
    ),
    _topic(
        "flush.policy", STRING, "never", one_of(*FLUSH_POLICIES), "log.flush.policy",
        "When records are flushed to disk. never: left to the operating system, as in Kafka. interval: every "
        "flush.ms, or every second if that is not set. commit: acknowledgements and consumers wait for an "
        "fsync, which concurrent requests share (group commit).",
    ),
    _topic(
        "follower.replication.throttled.replicas", LIST, "", throttled_replicas, "",
        "The replicas that are throttled as followers: partition:broker pairs, or * for all.",
    ),
    _topic(
        "index.interval.bytes", INT, 4096, at_least(0), "log.index.interval.bytes",
        "The number of bytes between two entries of the offset index. Smaller values make lookups more "
        "exact and the index larger.",
    ),
    _topic(
        "leader.replication.throttled.replicas", LIST, "", throttled_replicas, "",
        "The replicas that are throttled as leaders: partition:broker pairs, or * for all.",
    ),
    _topic(
        "local.retention.bytes", LONG, -2, at_least(-2), "log.local.retention.bytes",
        "The local size limit of a tiered partition; -2 means retention.bytes.",
    ),
    _topic(
        "local.retention.ms", LONG, -2, at_least(-2), "log.local.retention.ms",
        "The local retention time of a tiered partition; -2 means retention.ms.",
    ),
    _topic(
        "max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), "log.cleaner.max.compaction.lag.ms",
        "The maximum time that a record remains ineligible for compaction.",
    ),
    _topic(
        "max.message.bytes", INT, 1048588, at_least(0), "message.max.bytes",
        "The maximum size of a record batch, after compression if it is compressed.",
    ),
    _topic(
        "message.timestamp.after.max.ms", LONG, 3600000, at_least(0), "log.message.timestamp.after.max.ms",
        "The maximum time by which a record timestamp may be after the broker's time. Ignored with "
        "LogAppendTime.",
    ),
    _topic(
        "message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0), "log.message.timestamp.before.max.ms",
        "The maximum time by which a record timestamp may be before the broker's time. Ignored with "
        "LogAppendTime.",
    ),
    _topic(
        "message.timestamp.type", STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"),
        "log.message.timestamp.type",
        "Whether record timestamps are set by the producer (CreateTime) or by the broker (LogAppendTime).",
    ),
    _topic(
        "min.cleanable.dirty.ratio", DOUBLE, 0.5, between(0, 1), "log.cleaner.min.cleanable.ratio",
        "The ratio of dirty to total size at which the log is compacted. A smaller ratio wastes less space "
        "and compacts more often.",
    ),
    _topic(
        "min.compaction.lag.ms", LONG, 0, at_least(0), "log.cleaner.min.compaction.lag.ms",
        "The minimum time that a record remains uncompacted.",
    ),
    _topic(
        "min.insync.replicas", INT, 1, at_least(1), "min.insync.replicas",
        "The number of in-sync replicas that acks=all requires. With fewer, such writes fail with "
        "NOT_ENOUGH_REPLICAS.",
    ),
    _topic(
        "preallocate", BOOLEAN, "false", None, "log.preallocate",
        "Without effect here: segment files are never preallocated.",
    ),
    _topic(
        "remote.log.copy.disable", BOOLEAN, "false", None, "",
        "Stops copying a tiered topic to remote storage; copied segments remain readable.",
    ),
    _topic(
        "remote.log.delete.on.disable", BOOLEAN, "false", None, "",
        "Deletes the remote segments when tiered storage is disabled for the topic.",
    ),
    _topic(
        "remote.storage.enable", BOOLEAN, "false", None, "",
        "Enables tiered storage for the topic.",
    ),
    _topic(
        "retention.bytes", LONG, -1, None, "log.retention.bytes",
        "The size of a partition above which its oldest segments are deleted; -1 for no limit. The limit "
        "applies to each partition.",
    ),
    _topic(
        "retention.ms", LONG, 604800000, at_least(-1),
        "log.retention.ms log.retention.minutes log.retention.hours",
        "How long records are retained before their segment is deleted; -1 for no limit.",
    ),
    _topic(
        "runnel.key.schema.validation", BOOLEAN, "false", None, "",
        "Whether keys must begin with the id of a schema that is registered under the subject of the topic. "
        "Other records are refused with INVALID_RECORD.",
    ),
    _topic(
        "runnel.key.subject.name.strategy", STRING, "TopicNameStrategy", one_of(*SUBJECT_NAME_STRATEGIES), "",
        "The subject under which schemas of keys must be registered, as for "
        "runnel.value.subject.name.strategy; that of a topic is <topic>-key.",
    ),
    _topic(
        "runnel.value.schema.validation", BOOLEAN, "false", None, "",
        "Whether values must begin with the id of a schema that is registered under the subject of the "
        "topic. Other records are refused with INVALID_RECORD; null values pass.",
    ),
    _topic(
        "runnel.value.subject.name.strategy", STRING, "TopicNameStrategy", one_of(*SUBJECT_NAME_STRATEGIES),
        "",
        "The subject under which schemas of values must be registered. TopicNameStrategy: <topic>-value. "
        "RecordNameStrategy: the name of the schema's record. TopicRecordNameStrategy: <topic>-<name>.",
    ),
    _topic(
        "segment.bytes", INT, 1073741824, at_least(1048576), "log.segment.bytes",
        "The segment size at which a new segment is rolled. Retention and compaction work on whole segments: "
        "smaller ones follow the limits more closely, but need more files.",
    ),
    _topic(
        "segment.index.bytes", INT, 10485760, at_least(4), "log.index.size.max.bytes",
        "The maximum size of the offset index of a segment; a full index rolls a new segment.",
    ),
    _topic(
        "segment.jitter.ms", LONG, 0, at_least(0), "log.roll.jitter.ms log.roll.jitter.hours",
        "The maximum random jitter subtracted from segment.ms, so that partitions do not roll segments at "
        "the same time.",
    ),
    _topic(
        "segment.ms", LONG, 604800000, at_least(1), "log.roll.ms log.roll.hours",
        "The age at which a new segment is rolled even if it is not full, so that retention and compaction "
        "apply to its records.",
    ),
    _topic(
        "unclean.leader.election.enable", BOOLEAN, "false", None, "unclean.leader.election.enable",
        "Allows out-of-sync replicas to be elected leader as a last resort, which may lose data.",
    ),
)  # fmt: skip

DURATIONS_MS: dict[str, int] = {
    "log.retention.minutes": 60_000,
    "log.retention.hours": 3_600_000,
    "log.roll.hours": 3_600_000,
    "log.roll.jitter.hours": 3_600_000,
}
"""Milliseconds per unit of the synonyms that are in other units."""
