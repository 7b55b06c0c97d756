"""A request and the permissions that it needs, and the sets of ACLs it is sent with."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from runnel.broker.apis.handlers import APIS
from runnel.security.acl import CLUSTER_NAME, Operation, PatternType, PermissionType, ResourceType
from runnel.wire import Request
from tools.differential.comparison import Broker, BrokerPair, RequestFor

HERE, GONE = "here", "gone"
"""A topic that exists, and one that does not; also the ends of the names of groups and transactional ids."""
TOPICS = (HERE, GONE)
GROUPS = ("group-here", "group-gone")
TRANSACTIONAL_IDS = ("txn-here", "txn-gone")
CLUSTER = (CLUSTER_NAME,)

ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY


class Acl(NamedTuple):
    """An ACL of a user, who is not named here."""

    operation: Operation
    resource_type: ResourceType
    name: str
    permission: PermissionType = ALLOW
    pattern: PatternType = PatternType.LITERAL
    host: str = "*"


AclSet = frozenset[Acl]


class Need(NamedTuple):
    """An operation that is needed on some resources of a type."""

    operation: Operation
    resource_type: ResourceType
    names: tuple[str, ...]

    def acls(self, names: Iterable[str] = (), permission: PermissionType = ALLOW) -> set[Acl]:
        """ACLs of the operation, of all names unless some are given."""
        return {Acl(self.operation, self.resource_type, name, permission) for name in names or self.names}

    def __str__(self) -> str:
        return f"{self.operation.name} on {self.resource_type.name.lower()}"


def on_topics(operation: Operation, *names: str) -> Need:
    return Need(operation, ResourceType.TOPIC, names or TOPICS)


def on_groups(operation: Operation, *names: str) -> Need:
    return Need(operation, ResourceType.GROUP, names or GROUPS)


def on_cluster(operation: Operation) -> Need:
    return Need(operation, ResourceType.CLUSTER, CLUSTER)


def on_transactional_ids(operation: Operation, *names: str) -> Need:
    return Need(operation, ResourceType.TRANSACTIONAL_ID, names or TRANSACTIONAL_IDS)


class Variant(NamedTuple):
    """The ACLs of the user that sends a request."""

    label: str
    acls: AclSet
    is_denied: bool
    """Nothing of the request is permitted that has ids of its own in its response."""


Make = Callable[[Broker, int], Request]
"""Builds a request with the ids of a broker, for a version."""


def same(request: Request) -> Make:
    """The same request for all brokers and versions."""
    return lambda broker, version: request


@dataclass(slots=True)
class Probe:
    """A request of one API, and what it needs."""

    api_key: int
    case: str
    make: Make
    needs: tuple[Need, ...]
    versions: range | None = None
    """All of the API's, unless given."""
    ignore: str = ""
    ignore_served: str = ""
    """What is ignored besides where some of the request is permitted."""
    extra: tuple[tuple[str, AclSet], ...] = ()
    """Further sets of ACLs, with their labels."""
    has_all: bool = True
    """Whether it is also sent with all ACLs that it needs."""
    closes: bool = False
    """Whether Kafka closes the connection instead of responding."""
    prepare: Callable[[BrokerPair], None] | None = None
    """Done before each request."""

    def making(self, version: int) -> RequestFor:
        """Builds the request of a version."""
        return lambda broker: self.make(broker, version)

    def all_versions(self) -> range:
        """The versions that are sent."""
        api = APIS[self.api_key]
        return self.versions or range(api.version_min, api.version_max + 1)

    def variants(self) -> Iterator[Variant]:
        """Without ACLs, without each one that is needed, with DESCRIBE only, with a DENY, and with all."""
        yield Variant("no ACLs", frozenset(), True)
        needs = self.needs
        all_acls = {acl for need in needs for acl in need.acls()}
        for missing in needs:
            others = {acl for need in needs if need is not missing for acl in need.acls()}
            if others:
                yield Variant(f"without {missing}", frozenset(others), True)
        describe = {Acl(Operation.DESCRIBE, kind, name) for _, kind, names in needs for name in names}
        if describe and not all_acls <= describe:
            yield Variant("DESCRIBE only", frozenset(describe), True)
        everything = {Acl(Operation.ALL, kind, name) for _, kind, names in needs for name in names}
        for denied in needs:
            yield Variant(f"DENY {denied}", frozenset(everything | denied.acls((), DENY)), True)
        for partial in needs:
            if len(partial.names) > 1:
                others = {acl for need in needs if need is not partial for acl in need.acls()}
                for name in partial.names:
                    granted = frozenset(others | partial.acls([name]))
                    yield Variant(f"{partial} {name!r} only", granted, False)
        for label, granted in self.extra:
            yield Variant(label, granted, False)
        if self.has_all:
            yield Variant("all ACLs", frozenset(all_acls), False)
