"""Sends every request with every set of ACLs to both brokers."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from runnel.broker.apis.handlers import FORWARDED
from runnel.messages.create_acls import AclCreation, CreateAclsRequest
from runnel.model.ids import NO_ID
from runnel.wire import Struct, fields_of
from tools.differential.authorization.admin import admin_probes
from tools.differential.authorization.cluster import cluster_probes, set_up_tokens
from tools.differential.authorization.controller import requests_of_nodes
from tools.differential.authorization.data import data_probes
from tools.differential.authorization.groups import group_probes, set_up_groups
from tools.differential.authorization.probe import GONE, HERE, TOPICS, AclSet, Probe, Variant
from tools.differential.authorization.transactions import set_up_transactions, transaction_probes
from tools.differential.cases import wait_until_ready
from tools.differential.comparison import NEVER_EQUAL, SETTLE_S, Broker, BrokerPair, Difference, plain
from tools.differential.topics import create, new_topic
from tools.settings import plain_users

SUPER_USER = "one"
"""The client that creates what the others request."""
PASSWORD = "secret-of-all"

IGNORED_WHEN_DENIED = NEVER_EQUAL - {
    "topic_id",
    "host",
    "port",
    "session_id",
    "member_id",
    "leader",
    "producer_id",
    "log_append_time_ms",
    "last_timestamp",
    "heartbeat_interval_ms",
}
"""The other fields of what a denied client receives do not depend on the broker."""


_NAMES = re.compile(rf"[\w-]*({HERE}|{GONE})[\w-]*")


def probes() -> list[Probe]:
    """All requests."""
    return [
        *data_probes(),
        *group_probes(),
        *transaction_probes(),
        *admin_probes(),
        *cluster_probes(),
    ]


def controller_probes() -> list[Probe]:
    """Those that are sent to a controller as well, or only."""
    alike = FORWARDED | {17, 18, 36}
    shared = [probe for probe in (*admin_probes(), *cluster_probes()) if probe.api_key in alike]
    both = [*shared, *requests_of_nodes()]
    return [replace(probe, case=f"to a controller: {probe.case}") for probe in both]


@lru_cache
def users() -> dict[AclSet, str]:
    """A user for each set of ACLs."""
    found: dict[AclSet, str] = {}
    for probe in (*probes(), *controller_probes()):
        for variant in probe.variants():
            found.setdefault(variant.acls, f"user-{len(found)}")
    return found


def jaas_config(login: str | None = None) -> str:
    """The value of `sasl.jaas.config` with all users, and the user that a node itself is."""
    return plain_users(dict.fromkeys((SUPER_USER, *users().values()), PASSWORD), login)


def compare_authorization(
    brokers: tuple[int, int],
    controllers: tuple[int, int],
    settle_s: float = SETTLE_S,
    pattern: str = "",
) -> dict[str, list[Difference]]:
    """The differences of two new nodes, both broker and controller, on the ports of listeners with SASL.

    A pattern selects requests by the names of their cases.
    """
    pair = _pair(brokers, settle_s)
    to_controllers = _pair(controllers, settle_s)
    to_controllers.cases = pair.cases
    try:
        wait_until_ready(pair)
        _set_up(pair)
        for probe in filter(lambda probe: re.match(pattern, probe.case), probes()):
            _check(pair, probe)
        for one, other in ((to_controllers.ours, pair.ours), (to_controllers.theirs, pair.theirs)):
            one.topic_ids, one.token_hmac = other.topic_ids, other.token_hmac
        for probe in filter(lambda probe: re.match(pattern, probe.case), controller_probes()):
            _check(to_controllers, probe)
    finally:
        pair.close()
        to_controllers.close()
    return pair.cases


def _pair(ports: tuple[int, int], settle_s: float) -> BrokerPair:
    ours, theirs = ports
    return BrokerPair(Broker(ours, PASSWORD), Broker(theirs, PASSWORD), settle_s)


def _set_up(pair: BrokerPair) -> None:
    creations = [
        AclCreation(
            acl.resource_type,
            acl.name,
            acl.pattern,
            f"User:{user}",
            acl.host,
            acl.operation,
            acl.permission,
        )
        for acls, user in users().items()
        for acl in sorted(acls)
    ]
    for response in pair.begin(CreateAclsRequest(creations), 3, SUPER_USER).result():
        assert not isinstance(response, str), response
        assert {result.error_code for result in response.results} == {0}
    create(pair, new_topic(HERE, 1))
    set_up_groups(pair)
    set_up_transactions(pair)
    set_up_tokens(pair)


def _check(pair: BrokerPair, probe: Probe) -> None:
    user_of = users()
    for variant in probe.variants():
        case = f"{probe.case}: {variant.label}"
        client = user_of[variant.acls]
        for version in probe.all_versions():
            if probe.prepare is not None:
                probe.prepare(pair)
            responses = pair.begin(probe.making(version), version, client).result()
            # Otherwise there is nothing to compare with.
            assert isinstance(responses[1], str) == probe.closes, f"Kafka, {case} v{version}: {responses[1]}"
            _compare(pair, case, version, responses, probe, variant)


def _compare(
    pair: BrokerPair, case: str, version: int, responses: tuple[Any, Any], probe: Probe, variant: Variant
) -> None:
    for broker, response in zip((pair.ours, pair.theirs), responses, strict=True):
        rename(response, broker)
    ignored = IGNORED_WHEN_DENIED if variant.is_denied else NEVER_EQUAL - {"topic_id"}
    ignore = probe.ignore if variant.is_denied else f"{probe.ignore} {probe.ignore_served}"
    pair.compare(case, version, responses, ignore, ignored)
    if not variant.acls:
        for one, other in revealing(plain(responses[0], NEVER_EQUAL | set(probe.ignore.split()))):
            pair.cases[case].append(Difference(case, version, "existence is shown", one, other))


def rename(value: Any, broker: Broker) -> None:
    """Replace ids and ports that each broker chose by what they stand for."""
    if isinstance(value, list):
        for item in value:
            rename(item, broker)
    elif isinstance(value, Struct):
        names = {topic_id: name for name, topic_id in broker.topic_ids.items()}
        for item in fields_of(type(value)):
            content = getattr(value, item.name)
            if item.name == "topic_id" and content != NO_ID:
                setattr(value, item.name, names.get(bytes(content), "another"))
            elif item.name == "port" and content == broker.port:
                setattr(value, item.name, "its port")
            else:
                rename(content, broker)


def revealing(value: Any) -> Iterator[tuple[str, str]]:
    """Elements of a denial that are different for what exists and what does not."""
    if isinstance(value, dict):
        for item in value.values():
            yield from revealing(item)
    elif isinstance(value, list):
        here, gone = ({_NAMES.sub("", str(item)) for item in value if name in str(item)} for name in TOPICS)
        if here and gone and here != gone:
            yield str(here), str(gone)
