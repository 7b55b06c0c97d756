"""Topics for questions: made on both brokers, known to each under its own id."""

from runnel.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tools.twin.comparison import Twins

VERSION = 7


def new_topic(
    name: str, partitions: int = 2, replication_factor: int = 1, **configs: str | None
) -> CreatableTopic:
    """A topic to create; settings are given with underscores for dots."""
    settings = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    return CreatableTopic(name, partitions, replication_factor, configs=settings)


def create(twins: Twins, topic: CreatableTopic) -> str:
    """Make a topic on both; its name."""
    answers = twins.begin(CreateTopicsRequest([topic], 10_000), VERSION, "one").result()
    for twin, answer in zip((twins.ours, twins.theirs), answers, strict=True):
        (result,) = answer.topics
        assert result.error_code == 0, (topic.name, result.error_code, result.error_message)
        twin.topic_ids[topic.name] = result.topic_id
    twins.settle()
    return topic.name
