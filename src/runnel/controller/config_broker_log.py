"""Broker configs of logs: defaults that topics inherit, and log management."""

from runnel.controller.config_topic import COMPRESSIONS, FLUSH_POLICIES
from runnel.controller.config_types import (
    LONG_MAX,
    ConfigType,
    Importance,
    Scope,
    at_least,
    between,
    between_or,
    not_zero,
    one_of,
    some_of,
    table,
)
from runnel.controller.config_types import broker_config as _row

BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
DOUBLE, LIST = ConfigType.DOUBLE, ConfigType.LIST
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
FIXED, ANY = Scope.READ_ONLY, Scope.CLUSTER_WIDE

LOG_CONFIGS = table(
    # Segments.
    _row("log.segment.bytes", INT, 1073741824, at_least(1048576), HIGH, ANY,
         "The segment size at which a new segment is rolled."),
    _row("log.roll.ms", LONG, None, at_least(1), HIGH, ANY,
         "The age at which a new segment is rolled; log.roll.hours applies if this is not set."),
    _row("log.roll.hours", INT, 168, at_least(1), HIGH, FIXED,
         "The age in hours at which a new segment is rolled. log.roll.ms takes precedence."),
    _row("log.roll.jitter.ms", LONG, None, at_least(0), HIGH, ANY,
         "The maximum random jitter subtracted from the segment age; log.roll.jitter.hours applies if "
         "this is not set."),
    _row("log.roll.jitter.hours", INT, 0, at_least(0), HIGH, FIXED,
         "The maximum random jitter in hours subtracted from the segment age. log.roll.jitter.ms takes "
         "precedence."),
    _row("log.index.size.max.bytes", INT, 10485760, at_least(4), MEDIUM, ANY,
         "The maximum size of the offset index of a segment."),
    _row("log.index.interval.bytes", INT, 4096, at_least(0), MEDIUM, ANY,
         "The number of bytes between two entries of the offset index."),
    _row("log.preallocate", BOOLEAN, "false", None, MEDIUM, ANY,
         "Without effect here: segment files are never preallocated."),
    _row("log.segment.delete.delay.ms", LONG, 60000, at_least(0), HIGH, ANY,
         "How long the files of a deleted segment are kept for readers that still use them."),
    # Retention.
    _row("log.retention.ms", LONG, None, not_zero, HIGH, ANY,
         "How long records are retained; -1 for no limit. log.retention.minutes applies if this is not set."),
    _row("log.retention.minutes", INT, None, not_zero, HIGH, FIXED,
         "How long records are retained, in minutes; log.retention.ms takes precedence."),
    _row("log.retention.hours", INT, 168, not_zero, HIGH, FIXED,
         "How long records are retained, in hours; log.retention.ms and log.retention.minutes take "
         "precedence."),
    _row("log.retention.bytes", LONG, -1, None, HIGH, ANY,
         "The size of a partition above which its oldest segments are deleted; -1 for no limit."),
    _row("log.retention.check.interval.ms", LONG, 300000, at_least(1), MEDIUM, FIXED,
         "How often logs are checked for segments to delete."),
    _row("log.cleanup.policy", LIST, "delete", some_of("compact", "delete"), MEDIUM, ANY,
         "The default cleanup policy of topics: delete, compact, or both."),
    _row("log.local.retention.bytes", LONG, -2, at_least(-2), MEDIUM, ANY,
         "The local size limit of a tiered partition; -2 means log.retention.bytes."),
    _row("log.local.retention.ms", LONG, -2, at_least(-2), MEDIUM, ANY,
         "The local retention time of a tiered partition; -2 means log.retention.ms."),
    # Encryption at rest.
    _row("log.encryption.enable", BOOLEAN, "false", None, HIGH, ANY,
         "The default encryption.enable of topics."),
    # Flushing.
    _row("log.flush.policy", STRING, "never", one_of(*FLUSH_POLICIES), HIGH, ANY,
         "The default flush.policy of topics: never, interval, or commit."),
    _row("log.flush.interval.messages", LONG, LONG_MAX, at_least(1), HIGH, ANY,
         "The number of records after which a log is flushed to disk."),
    _row("log.flush.interval.ms", LONG, None, at_least(0), HIGH, ANY,
         "The maximum time before a log is flushed to disk; log.flush.scheduler.interval.ms applies if "
         "this is not set."),
    _row("log.flush.scheduler.interval.ms", LONG, LONG_MAX, at_least(1), HIGH, FIXED,
         "Applies as log.flush.interval.ms if that is not set. Logs are checked for a due flush twice per "
         "second."),
    _row("log.flush.offset.checkpoint.interval.ms", INT, 60000, at_least(0), HIGH, FIXED,
         "How often the recovery points of all logs are checkpointed."),
    _row("log.flush.start.offset.checkpoint.interval.ms", INT, 60000, at_least(0), HIGH, FIXED,
         "How often the log start offsets of all logs are checkpointed."),
    # Validation of records.
    _row("message.max.bytes", INT, 1048588, at_least(0), HIGH, ANY,
         "The maximum size of a record batch, as stored."),
    _row("log.message.timestamp.type", STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"), MEDIUM,
         ANY,
         "Whether record timestamps are set by the producer (CreateTime) or by the broker (LogAppendTime)."),
    _row("log.message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0), MEDIUM, ANY,
         "The maximum time by which a record timestamp may be before the broker's time."),
    _row("log.message.timestamp.after.max.ms", LONG, 3600000, at_least(0), MEDIUM, ANY,
         "The maximum time by which a record timestamp may be after the broker's time."),
    _row("compression.type", STRING, "producer", one_of(*COMPRESSIONS), HIGH, ANY,
         "The compression codec of stored batches; producer retains the codec of the producer."),
    _row("compression.gzip.level", INT, -1, between_or(1, 9, -1), MEDIUM, ANY,
         "The compression level if compression.type is gzip; -1 for the default of the library."),
    _row("compression.lz4.level", INT, 9, between(1, 17), MEDIUM, ANY,
         "The compression level if compression.type is lz4."),
    _row("compression.zstd.level", INT, 3, between(-131072, 22), MEDIUM, ANY,
         "The compression level if compression.type is zstd."),
    _row("producer.id.expiration.ms", INT, 86400000, at_least(1), LOW, ANY,
         "How long a partition retains the state of an inactive idempotent producer."),
    # Compaction.
    _row("log.cleaner.enable", BOOLEAN, "true", None, MEDIUM, FIXED,
         "Enables log compaction. Without it, compacted topics, including __consumer_offsets, grow "
         "without limit."),
    _row("log.cleaner.dedupe.buffer.size", LONG, 134217728, at_least(1048576), MEDIUM, ANY,
         "The memory for deduplicating keys during compaction."),
    _row("log.cleaner.backoff.ms", LONG, 15000, at_least(0), MEDIUM, ANY,
         "How long the cleaner sleeps if no log needs cleaning."),
    _row("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, between(0, 1), MEDIUM, ANY,
         "The ratio of dirty to total size at which a log is compacted."),
    _row("log.cleaner.delete.retention.ms", LONG, 86400000, at_least(0), MEDIUM, ANY,
         "How long tombstones are retained in compacted logs."),
    _row("log.cleaner.min.compaction.lag.ms", LONG, 0, at_least(0), MEDIUM, ANY,
         "The minimum time that a record remains uncompacted."),
    _row("log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), MEDIUM, ANY,
         "The maximum time that a record remains ineligible for compaction."),
)  # fmt: skip
