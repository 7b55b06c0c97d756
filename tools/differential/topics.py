"""Topics of the cases: created on both brokers, with their ids there."""

from runnel.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tools.differential.comparison import BrokerPair

VERSION = 7


def new_topic(
    name: str, partitions: int = 2, replication_factor: int = 1, **configs: str | None
) -> CreatableTopic:
    """A topic to create; settings are given with underscores for dots."""
    settings = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    return CreatableTopic(name, partitions, replication_factor, configs=settings)


def create(pair: BrokerPair, topic: CreatableTopic) -> str:
    """Create a topic on both; its name."""
    responses = pair.begin(CreateTopicsRequest([topic], 10_000), VERSION, "one").result()
    for broker, response in zip((pair.ours, pair.theirs), responses, strict=True):
        (result,) = response.topics
        assert result.error_code == 0, (topic.name, result.error_code, result.error_message)
        broker.topic_ids[topic.name] = result.topic_id
    pair.settle()
    return topic.name
