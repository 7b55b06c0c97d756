"""Decoding the subscriptions of classic consumers: the topics that a group is subscribed to.

Every version of the consumer protocol begins with its version and the topic names. Other protocol types, such
as Connect's, are opaque.
"""

from struct import Struct, error

from runnel.coordinator.group.group import CONSUMER_PROTOCOL, Group

_VERSION_AND_COUNT = Struct(">hi")
_LENGTH = Struct(">h")


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics that the members are subscribed to; None if unknown."""
    if group.protocol_type != CONSUMER_PROTOCOL:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        names = topic_names(member.metadata(group.protocol))
        if names is None:
            return None
        topics.update(names)
    return frozenset(topics)


def is_subscribed(group: Group, topics: frozenset[str] | None, topic: str) -> bool:
    """Whether a member may be subscribed to this topic; assumed if subscriptions are unknown."""
    if topics is None:
        return group.protocol_type == CONSUMER_PROTOCOL
    return topic in topics


def topic_names(metadata: bytes) -> list[str] | None:
    """The topic names of a consumer's subscription, or None if it is malformed."""
    try:
        _, count = _VERSION_AND_COUNT.unpack_from(metadata)
        position = _VERSION_AND_COUNT.size
        names = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            name = metadata[position : position + length]
            if length < 0 or len(name) < length:
                return None
            names.append(name.decode("utf-8"))
            position += length
    except (error, UnicodeDecodeError):
        return None
    return names
