"""The settings of topics that decide about their ISRs and elections."""

from typing import NamedTuple

from runnel.controller.image import MetadataImage
from runnel.controller.settings import Settings
from runnel.controller.values import Topic

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"


class TopicPolicy(NamedTuple):
    """How many replicas must be in sync, and whether others may lead as a last resort."""

    min_isr: int
    is_unclean: bool


class TopicPolicies:
    """The policies of topics in one image."""

    __slots__ = ("_cluster", "_default", "_image", "_known")

    def __init__(self, image: MetadataImage, settings: Settings) -> None:
        self._image = image
        self._cluster = image.broker_configs(None)
        self._default = TopicPolicy(
            _number(self._cluster.get(MIN_ISR), settings.int(MIN_ISR)),
            _flag(self._cluster.get(UNCLEAN), settings.bool(UNCLEAN)),
        )
        self._known: dict[tuple[int, bool, int], TopicPolicy] = {}

    def of(self, topic: Topic) -> TopicPolicy:
        """The policy of a topic; equal policies are one object."""
        configs = self._image.topic_configs(topic.name)
        min_isr, is_unclean = self._default
        if configs:
            min_isr = _number(configs.get(MIN_ISR), min_isr)
            is_unclean = _flag(configs.get(UNCLEAN), is_unclean)
        replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
        key = min_isr, is_unclean, replicas
        policy = self._known.get(key)
        if policy is None:
            # More replicas than there are cannot be required.
            policy = self._known[key] = TopicPolicy(min(min_isr, replicas), is_unclean)
        return policy


def _number(text: str | None, otherwise: int) -> int:
    # Validated when it was set.
    return int(text) if text is not None and text.isdecimal() else otherwise


def _flag(text: str | None, otherwise: bool) -> bool:
    return otherwise if text is None else text.lower() == "true"
