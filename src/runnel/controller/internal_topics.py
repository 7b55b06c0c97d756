"""Automatic creation of internal topics and of topics on first use."""

from runnel.controller.image import MetadataImage
from runnel.controller.settings import Settings
from runnel.controller.values import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from runnel.messages.create_topics import CreatableTopic, CreatableTopicConfig


def automatic_topic(image: MetadataImage, settings: Settings, name: str) -> CreatableTopic:
    """The creation request for an automatically created topic, with the settings of the requesting broker."""
    if name in _INTERNAL:
        return _internal(image, settings, name, *_INTERNAL[name])
    if name == settings.text("audit.log.topic"):
        return _audit_topic(image, settings, name)
    return CreatableTopic(
        name,
        num_partitions=settings.int("num.partitions"),
        replication_factor=settings.int("default.replication.factor"),
    )


_OFFSETS = {"cleanup.policy": "compact", "compression.type": "producer"}
_TRANSACTIONS = {
    "cleanup.policy": "compact",
    "compression.type": "uncompressed",
    "unclean.leader.election.enable": "false",
}
_SHARES = {"cleanup.policy": "delete", "compression.type": "producer", "retention.ms": "-1"}

_INTERNAL = {
    CONSUMER_OFFSETS: ("offsets.topic", _OFFSETS),
    TRANSACTION_STATE: ("transaction.state.log", _TRANSACTIONS),
    SHARE_GROUP_STATE: ("share.coordinator.state.topic", _SHARES),
}
"""The prefix of the broker configs for each internal topic, and the topic's config overrides."""


def _internal(
    image: MetadataImage, settings: Settings, name: str, prefix: str, configs: dict[str, str]
) -> CreatableTopic:
    replication_factor = _replication_factor(image, settings, prefix)
    own = {**configs, "segment.bytes": str(settings.int(f"{prefix}.segment.bytes"))}
    if f"{prefix}.min.isr" in settings:
        own["min.insync.replicas"] = str(min(settings.int(f"{prefix}.min.isr"), replication_factor))
    return CreatableTopic(
        name,
        num_partitions=settings.int(f"{prefix}.num.partitions"),
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(key, value) for key, value in own.items()],
    )


_AUDIT_BATCH_BYTES_MAX = 1024 * 1024


def _audit_topic(image: MetadataImage, settings: Settings, name: str) -> CreatableTopic:
    """One partition, so that events of a node are in order; each node writes to one of those added later."""
    replication_factor = _replication_factor(image, settings, "audit.log.topic")
    configs = {
        "cleanup.policy": "delete",
        # Or the clock of a node that is wrong would decide what is refused and what expires.
        "message.timestamp.type": "LogAppendTime",
        # Batches of events are larger than what clients may be limited to.
        "max.message.bytes": str(_AUDIT_BATCH_BYTES_MAX),
        "retention.ms": str(settings.int("audit.log.topic.retention.ms")),
        "retention.bytes": "-1",
        "min.insync.replicas": str(min(2, replication_factor)),
        "unclean.leader.election.enable": "false",
    }
    return CreatableTopic(
        name,
        num_partitions=1,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(key, value) for key, value in configs.items()],
    )


def _replication_factor(image: MetadataImage, settings: Settings, prefix: str) -> int:
    replication_factor = settings.int(f"{prefix}.replication.factor")
    if not settings.words("process.roles"):
        # A node without roles is a cluster of one, which needs coordinators too. Others wait for brokers.
        replication_factor = min(replication_factor, max(1, len(image.brokers)))
    return replication_factor
