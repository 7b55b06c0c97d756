"""Whether this node serves its clients, and whether the cluster can do without it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runnel.controller.topic_policies import TopicPolicies

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

TOPICS_PER_STEP = 200
"""Topics that are examined before others are served."""
SHOWN_MAX = 20
"""Partitions that are named as reasons."""


def reasons_not_ready(broker: "Broker", *, is_broker: bool) -> list[str]:
    """Why a node that has started does not serve all that it should; empty if it does."""
    reasons = []
    if broker.metadata.failure is not None:
        reasons.append(f"metadata is not applied: {broker.metadata.failure}")
    if not is_broker:
        if broker.quorum.leader_id < 0:
            reasons.append("the metadata quorum has no leader")
        return reasons
    registration = broker.metadata.image.brokers.get(broker.node_id)
    if registration is None or registration.is_fenced:
        reasons.append("this broker is fenced")
    elif broker.may_be_fenced:
        reasons.append("the controller does not respond: this broker may be fenced")
    for shards in (broker.groups, broker.transactions):
        loading = sum(not driver.is_loaded for driver in shards.drivers())
        if loading:
            reasons.append(f"{loading} partitions of {shards.topic} are being loaded")
    return reasons


def reasons_to_stay(broker: "Broker") -> Iterator[list[str] | None]:
    """The partitions that would fall below min.insync.replicas without this node come last, some by name.

    None before, where the work can be interrupted. Partitions that have no more replicas than their minimum
    are left out: no node that has one of those could ever be stopped.
    """
    image, node_id = broker.metadata.image, broker.node_id
    policies = TopicPolicies(image, broker.settings)
    reasons: list[str] = []
    count = 0
    for number, topic in enumerate(list(image.topics.values())):
        min_isr = policies.of(topic).min_isr
        for index, state in enumerate(topic.partitions):
            if node_id in state.isr and len(state.isr) <= min_isr < len(state.replicas):
                count += 1
                if len(reasons) < SHOWN_MAX:
                    reasons.append(f"{topic.name}-{index} has {len(state.isr)} in-sync replicas")
        if number % TOPICS_PER_STEP == 0:
            yield None
    if count > len(reasons):
        reasons.append(f"and {count - len(reasons)} more partitions")
    yield reasons
