"""The log configs of a topic, resolved from topic, broker and default values."""

from dataclasses import dataclass, field
from enum import Enum

HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS
FOREVER = 2**63 - 1
DEDUP_CLOCK_TOLERANCE_MS = 60_000
"""By how much the clocks of two leaders may differ without an idempotency key being forgotten too early."""


class FlushPolicy(Enum):
    """When records are flushed from the page cache to disk."""

    NEVER = "never"
    INTERVAL = "interval"
    COMMIT = "commit"


class TimestampType(Enum):
    """Whether a record's timestamp is set by the producer or by the broker."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The log configs of one topic; each name is the topic config with underscores for dots."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    flush_policy: FlushPolicy = FlushPolicy.NEVER
    flush_messages: int = FOREVER
    flush_ms: int = FOREVER
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    file_delete_delay_ms: int = 60_000
    cleanup_delete: bool = True
    cleanup_compact: bool = False
    min_cleanable_dirty_ratio: float = 0.5
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = FOREVER
    dedup_window_ms: int = 0
    dedup_keys_max: int = 100_000
    max_message_bytes: int = 1024 * 1024 + 12
    encryption_enable: bool = False
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = FOREVER
    message_timestamp_after_max_ms: int = HOUR_MS
    min_insync_replicas: int = 1
    producer_id_expiration_ms: int = DAY_MS
    runnel_key_schema_validation: bool = False
    runnel_value_schema_validation: bool = False
    runnel_key_subject_name_strategy: str = "TopicNameStrategy"
    runnel_value_subject_name_strategy: str = "TopicNameStrategy"

    acks_wait_for_disk: bool = field(init=False, repr=False, compare=False)
    """Whether acknowledgements wait for an fsync. Computed once, because every write asks for it."""

    inspects_records: bool = field(init=False, repr=False, compare=False)
    """Whether a batch is not accepted by its header alone: its records are walked, or recompressed."""

    validates_schemas: bool = field(init=False, repr=False, compare=False)
    """Whether keys or values must have the id of a schema that is registered."""

    compaction_lag_ms: int = field(init=False, repr=False, compare=False)
    """How long records remain uncompacted: those with an idempotency key as long as the key is remembered."""

    def __post_init__(self) -> None:
        is_synced = self.flush_policy is FlushPolicy.COMMIT or self.flush_messages == 1
        object.__setattr__(self, "acks_wait_for_disk", is_synced)
        validates = self.runnel_key_schema_validation or self.runnel_value_schema_validation
        object.__setattr__(self, "validates_schemas", validates)
        inspects = (
            validates
            or self.cleanup_compact
            or self.dedup_window_ms > 0
            or self.compression_type != "producer"
            or self.message_timestamp_before_max_ms < FOREVER
        )
        object.__setattr__(self, "inspects_records", inspects)
        remembered_ms = self.dedup_window_ms + DEDUP_CLOCK_TOLERANCE_MS if self.dedup_window_ms else 0
        object.__setattr__(self, "compaction_lag_ms", max(self.min_compaction_lag_ms, remembered_ms))
