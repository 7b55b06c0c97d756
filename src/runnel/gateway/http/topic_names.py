"""Names of topics as Kafka allows them, and topics that belong to the cluster."""

import re

from runnel.client.cluster import TopicView
from runnel.gateway.http.problems import Problem

NAME_PATTERN = r"[a-zA-Z0-9._-]{1,249}"
_NAME = re.compile(NAME_PATTERN)
SYSTEM_TOPICS = frozenset(("_schemas",))
"""Topics that brokers do not call internal, and that are written by gateways only."""


def check_topic_name(name: str, *, status: int = 422) -> None:
    """Problem unless a topic can have this name."""
    if _NAME.fullmatch(name) is None or name in (".", ".."):
        raise Problem(status, "a topic has a name of 1 to 249 letters, digits, '.', '_' and '-'")


def check_may_change(view: TopicView) -> None:
    """403 for topics that belong to the cluster."""
    if view.is_internal or view.name in SYSTEM_TOPICS:
        raise Problem(403, f"{view.name} is an internal topic: it can be read here, not changed")
