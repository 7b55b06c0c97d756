"""Creates the topics that a pipeline writes to, if they do not exist."""

from runnel.client.admin import BROKER_DEFAULT
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.declared.declaration import Declaration, Source, TopicTarget
from runnel.pipelines.declared.graph import sources_of
from runnel.pipelines.declared.patterns import DEAD_LETTERS, read_pattern
from runnel.pipelines.declared.topic_frames import has_malformed

MARGIN_BYTES = 64 * 1024
"""The headers of a dead letter make it this much larger than its record, at most."""
_BYTES_MAX = 2**31 - 1
_SIZE = "max.message.bytes"


def create_topics(declaration: Declaration, broker: BrokerView) -> None:
    """Create missing topics of sinks and of dead letters."""
    for sink in declaration.sinks.values():
        if isinstance(sink.target, TopicTarget):
            broker.ensure_topic(sink.target.topic, partitions=sink.target.partitions or BROKER_DEFAULT)
    for topic, origins in _dead_letters(declaration, broker).items():
        # Every record of its source topics must fit.
        sizes = [int(broker.topic_settings(origin).get(_SIZE) or 0) for origin in origins]
        size = min(max(sizes, default=0) + MARGIN_BYTES, _BYTES_MAX)
        broker.ensure_topic(topic, settings={_SIZE: str(size)} if any(sizes) else None)


def read_sources(declaration: Declaration) -> list[Source]:
    """The sources that are used by sinks."""
    found = {
        source.name: source
        for sink in declaration.sinks.values()
        for source in sources_of(sink.input.name, declaration)
    }
    return list(found.values())


def dead_letter_sources(declaration: Declaration) -> list[Source]:
    """The used sources whose malformed values are written as dead letters."""
    return [
        source
        for source in read_sources(declaration)
        if source.on_malformed == "dead-letter" and has_malformed(source)
    ]


def _dead_letters(declaration: Declaration, broker: BrokerView) -> dict[str, list[str]]:
    """The missing dead-letter topics, each with its existing source topics."""
    existing = {view.name for view in broker.topics()}
    found: dict[str, list[str]] = {}
    for source in dead_letter_sources(declaration):
        topics = _topics(source, declaration, broker)
        own = source.dead_letter_topic
        if own is not None:
            found.setdefault(own, [])
        for topic in topics:
            found.setdefault(own or f"{topic}{DEAD_LETTERS}", []).append(topic)
    return {
        letters: [topic for topic in topics if topic in existing]
        for letters, topics in found.items()
        if letters not in existing
    }


def _topics(source: Source, declaration: Declaration, broker: BrokerView) -> list[str]:
    """The topics that a source lists, or the existing topics that match its pattern."""
    from runnel.pipelines.source.options import Subscription
    from runnel.pipelines.source.resolving import subscribed

    pattern = read_pattern(source, declaration)
    if pattern is None:
        return list(source.topics)
    return sorted({partition.topic for partition in subscribed(broker, Subscription(pattern=pattern))})
