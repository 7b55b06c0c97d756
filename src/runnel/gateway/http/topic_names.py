"""Names of topics as Kafka allows them, and topics that belong to the cluster."""

import re

from runnel.client.cluster import TopicView
from runnel.gateway.http.problems import Problem

NAME_PATTERN = r"[a-zA-Z0-9._-]{1,249}"
_NAME = re.compile(NAME_PATTERN)
SCHEMAS = "_schemas"
SYSTEM_PREFIX = "__"
"""Topics of brokers and gateways, which they create and write themselves: not all are internal to brokers."""


def check_topic_name(name: str, *, status: int = 422) -> None:
    """Problem unless a topic can have this name."""
    if _NAME.fullmatch(name) is None or name in (".", ".."):
        raise Problem(status, "a topic has a name of 1 to 249 letters, digits, '.', '_' and '-'")


def check_may_change(view: TopicView) -> None:
    """403 for topics that belong to the cluster."""
    check_no_system_topic(view.name, is_internal=view.is_internal)


def check_no_system_topic(name: str, *, is_internal: bool = False) -> None:
    """403 for names of topics that belong to the cluster, also of those that do not exist yet."""
    if is_internal or name == SCHEMAS or name.startswith(SYSTEM_PREFIX):
        raise Problem(403, f"{name} is an internal topic: it can be read here, not changed")
