"""Broker settings about logs: the defaults that topics inherit, and the work that is done on all logs."""

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
    # Size and age of segments.
    _row("log.segment.bytes", INT, 1073741824, at_least(1048576), HIGH, ANY,
         "How large a segment file grows before the next one is started."),
    _row("log.roll.ms", LONG, None, at_least(1), HIGH, ANY,
         "How old a segment grows before the next one is started; log.roll.hours counts when this is "
         "not set."),
    _row("log.roll.hours", INT, 168, at_least(1), HIGH, FIXED,
         "How old, in hours, a segment grows before the next one is started. log.roll.ms is stronger."),
    _row("log.roll.jitter.ms", LONG, None, at_least(0), HIGH, ANY,
         "Up to this much is taken off the segment age by chance; log.roll.jitter.hours counts when "
         "this is not set."),
    _row("log.roll.jitter.hours", INT, 0, at_least(0), HIGH, FIXED,
         "Up to this many hours are taken off the segment age by chance. log.roll.jitter.ms is stronger."),
    _row("log.index.size.max.bytes", INT, 10485760, at_least(4), MEDIUM, ANY,
         "How large the offset index of one segment may grow."),
    _row("log.index.interval.bytes", INT, 4096, at_least(0), MEDIUM, ANY,
         "How many bytes of records lie between two entries of the offset index."),
    _row("log.preallocate", BOOLEAN, "false", None, MEDIUM, ANY,
         "Without effect here: segment files grow as records come."),
    _row("log.segment.delete.delay.ms", LONG, 60000, at_least(0), HIGH, ANY,
         "How long a dropped segment stays on the disk for readers that are still in it."),
    # Retention.
    _row("log.retention.ms", LONG, None, not_zero, HIGH, ANY,
         "How long records are kept; -1 is for ever. log.retention.minutes counts when this is not set."),
    _row("log.retention.minutes", INT, None, not_zero, HIGH, FIXED,
         "How many minutes records are kept; log.retention.ms is stronger, log.retention.hours weaker."),
    _row("log.retention.hours", INT, 168, not_zero, HIGH, FIXED,
         "How many hours records are kept; log.retention.ms and log.retention.minutes are stronger."),
    _row("log.retention.bytes", LONG, -1, None, HIGH, ANY,
         "How large a partition may grow before its oldest segments are deleted; -1 is no limit."),
    _row("log.retention.check.interval.ms", LONG, 300000, at_least(1), MEDIUM, FIXED,
         "How often logs are looked over for segments that retention lets go."),
    _row("log.cleanup.policy", LIST, "delete", some_of("compact", "delete"), MEDIUM, ANY,
         "How old records go where a topic does not say: delete, compact, or both."),
    _row("log.local.retention.bytes", LONG, -2, at_least(-2), MEDIUM, ANY,
         "How much of a tiered partition stays on the local disk; -2 means as much as log.retention.bytes."),
    _row("log.local.retention.ms", LONG, -2, at_least(-2), MEDIUM, ANY,
         "How long a tiered partition stays on the local disk; -2 means as long as log.retention.ms."),
    # When records reach the disk.
    _row("log.flush.policy", STRING, "never", one_of(*FLUSH_POLICIES), HIGH, ANY,
         "When records must be on the disk where a topic does not say: never, interval, or commit."),
    _row("log.flush.interval.messages", LONG, LONG_MAX, at_least(1), HIGH, ANY,
         "Force a log to the disk each time this many records have been written."),
    _row("log.flush.interval.ms", LONG, None, at_least(0), HIGH, ANY,
         "Force a log to the disk at least this often; log.flush.scheduler.interval.ms counts when "
         "this is not set."),
    _row("log.flush.scheduler.interval.ms", LONG, LONG_MAX, at_least(1), HIGH, FIXED,
         "Counts as log.flush.interval.ms where that is not set; what is due is looked for twice a second."),
    _row("log.flush.offset.checkpoint.interval.ms", INT, 60000, at_least(0), HIGH, FIXED,
         "How often it is written down how far each log is known to be on the disk, which shortens "
         "recovery."),
    _row("log.flush.start.offset.checkpoint.interval.ms", INT, 60000, at_least(0), HIGH, FIXED,
         "How often it is written down where each log begins."),
    # What is accepted into a log.
    _row("message.max.bytes", INT, 1048588, at_least(0), HIGH, ANY,
         "The largest record batch that is taken, measured as it is stored."),
    _row("log.message.timestamp.type", STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"), MEDIUM,
         ANY,
         "Whose clock stamps a record: CreateTime for the producer's, LogAppendTime for the broker's."),
    _row("log.message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0), MEDIUM, ANY,
         "How far behind the broker's clock a producer's timestamp may be."),
    _row("log.message.timestamp.after.max.ms", LONG, 3600000, at_least(0), MEDIUM, ANY,
         "How far ahead of the broker's clock a producer's timestamp may be."),
    _row("compression.type", STRING, "producer", one_of(*COMPRESSIONS), HIGH, ANY,
         "The codec that batches are stored in; producer leaves them as they were sent."),
    _row("compression.gzip.level", INT, -1, between_or(1, 9, -1), MEDIUM, ANY,
         "How hard gzip tries when compression.type is gzip; -1 leaves it to the library."),
    _row("compression.lz4.level", INT, 9, between(1, 17), MEDIUM, ANY,
         "How hard lz4 tries when compression.type is lz4."),
    _row("compression.zstd.level", INT, 3, between(-131072, 22), MEDIUM, ANY,
         "How hard zstd tries when compression.type is zstd."),
    _row("producer.id.expiration.ms", INT, 86400000, at_least(1), LOW, ANY,
         "How long a partition remembers an idempotent producer that writes no more."),
    # Compaction.
    _row("log.cleaner.enable", BOOLEAN, "true", None, MEDIUM, FIXED,
         "Whether compacted topics are compacted at all. Without it they, and the offsets topic, "
         "grow for ever."),
    _row("log.cleaner.dedupe.buffer.size", LONG, 134217728, at_least(1048576), MEDIUM, ANY,
         "How much memory compaction may use to remember keys."),
    _row("log.cleaner.backoff.ms", LONG, 15000, at_least(0), MEDIUM, ANY,
         "How long compaction rests when no log needs it."),
    _row("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, between(0, 1), MEDIUM, ANY,
         "The share of a compacted log that must be new before it is compacted again."),
    _row("log.cleaner.delete.retention.ms", LONG, 86400000, at_least(0), MEDIUM, ANY,
         "How long compacted logs still show the record that deleted a key."),
    _row("log.cleaner.min.compaction.lag.ms", LONG, 0, at_least(0), MEDIUM, ANY,
         "How long a record is safe from compaction."),
    _row("log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), MEDIUM, ANY,
         "The longest that a record may wait for compaction."),
)  # fmt: skip
