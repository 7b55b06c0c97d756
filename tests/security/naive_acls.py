"""Kafka's rules of authorization, evaluated by looking at every ACL, and random ACLs and clients."""

from collections.abc import Iterable, Iterator
from ipaddress import ip_address, ip_network

from hypothesis import strategies as st

from runnel.security.acl import AccessControlEntry, Operation, PatternType, PermissionType, ResourceType

OPERATIONS = sorted(Operation)[2:]
"""What can be asked for: neither ANY nor ALL."""

IMPLIED_BY = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}

# Names that are prefixes of each other, beside the two that Kafka treats differently.
names = st.sampled_from(["*", "hardcode"]) | st.text("ab", min_size=1, max_size=4)
_networks = st.builds(
    lambda address, length: f"{address}/{min(length, 32 if '.' in address else 128)}",
    st.sampled_from(["10.0.0.1", "10.0.0.9", "10.0.1.1", "0.0.0.0", "::1", "2001:db8::1", "::ffff:10.0.0.1"]),
    st.sampled_from([0, 8, 23, 24, 29, 30, 31, 32, 64, 96, 104, 120, 127, 128]),
)
hosts = _networks | st.sampled_from(
    ["*", "10.0.0.1", "10.0.0.2", "::1", "0:0:0:0:0:0:0:1", "::ffff:10.0.0.1", "localhost", "10.0.0.0/99", ""]
)
principals = st.sampled_from(["User:alice", "User:bob", "User:*", "Group:alice", "User:alic"])
resource_types = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
acls = st.builds(
    AccessControlEntry,
    resource_types,
    names,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    principals,
    hosts,
    st.sampled_from(sorted(Operation)[1:]),
    st.sampled_from([PermissionType.ALLOW, PermissionType.DENY]),
)
colliding_acls = st.builds(
    AccessControlEntry,
    st.just(ResourceType.TOPIC),
    st.sampled_from(["a", "ab", "*"]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(["User:alice", "User:*"]),
    st.just("*"),
    st.sampled_from([Operation.WRITE, Operation.ALL]),
    st.sampled_from([PermissionType.ALLOW, PermissionType.DENY]),
)
"""Few patterns of one principal, so that some are denied by others."""
contested_acls = st.builds(
    AccessControlEntry,
    st.just(ResourceType.TOPIC),
    st.sampled_from(["a", "ab", "abc", "b", "*", "h"]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from(["*", "10.0.0.1", "10.0.0.0/24"]),
    st.sampled_from([Operation.WRITE, Operation.ALL, Operation.READ]),
    st.sampled_from([PermissionType.ALLOW, PermissionType.DENY]),
)
"""The same of several principals and hosts."""
clients = st.sampled_from(["10.0.0.1", "10.0.0.9", "192.0.2.1", "::1", "::ffff:10.0.0.1", "2001:db8::2"])
askers = st.sampled_from(["User:alice", "User:bob", "Group:alice"])


def matches_host(host: str, client: str) -> bool:
    """Whether a client is at the host of an ACL."""
    if host in ("*", client):
        return True
    try:
        network = ip_network(host, strict=False)
    except ValueError:
        return False
    address = ip_address(client)
    mapped = getattr(address, "ipv4_mapped", None)
    if address.version == 4:
        mapped = ip_address(f"::ffff:{address}")
    # An IPv4 address is the same as the IPv6 address that it is mapped to, which only a range of such has.
    if network.version == 6 and network.prefixlen < 96 and (mapped is not None):
        return False
    return any(
        each is not None and each.version == network.version and each in network for each in (address, mapped)
    )


def matches_name(acl: AccessControlEntry, name: str) -> bool:
    """Whether the pattern of an ACL includes a resource."""
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")


def allows(
    entries: Iterable[AccessControlEntry],
    asker: str,
    client: str,
    operation: Operation,
    resource_type: int,
    name: str,
    *,
    super_users: Iterable[str] = (),
    everyone: bool = False,
) -> bool:
    """Whether an operation on a resource is permitted.

    Super users may do everything. Any DENY wins, else any ALLOW. If no ACL of any principal is about the
    resource, `everyone` (allow.everyone.if.no.acl.found) decides. A DENY implies no other operation.
    """
    if asker in super_users:
        return True
    touching = [acl for acl in entries if acl.resource_type == resource_type and matches_name(acl, name)]
    if not touching:
        return everyone
    own = [acl for acl in touching if acl.principal in (asker, "User:*") and matches_host(acl.host, client)]
    if any(
        acl.permission_type == PermissionType.DENY and acl.operation in (operation, Operation.ALL)
        for acl in own
    ):
        return False
    sufficient = {operation, Operation.ALL} | IMPLIED_BY.get(operation, set())
    return any(acl.permission_type == PermissionType.ALLOW and acl.operation in sufficient for acl in own)


def allows_some(
    entries: Iterable[AccessControlEntry],
    asker: str,
    client: str,
    operation: Operation,
    resource_type: int,
    *,
    super_users: Iterable[str] = (),
    everyone: bool = False,
) -> bool:
    """Whether an operation is permitted on at least one resource, as `authorizeByResourceType` decides."""
    entries = list(entries)
    if asker in super_users or allows(
        entries, asker, client, operation, resource_type, "hardcode", everyone=everyone
    ):
        return True
    own = [
        acl
        for acl in entries
        if acl.resource_type == resource_type
        and acl.principal in (asker, "User:*")
        and matches_host(acl.host, client)
        and acl.operation in (operation, Operation.ALL)
    ]

    def patterns(permission: PermissionType, kind: PatternType) -> set[str]:
        return {
            acl.resource_name for acl in own if (acl.permission_type, acl.pattern_type) == (permission, kind)
        }

    denied = patterns(PermissionType.DENY, PatternType.LITERAL)
    denied_prefixes = patterns(PermissionType.DENY, PatternType.PREFIXED)
    if "*" in denied:
        return False
    allowed = patterns(PermissionType.ALLOW, PatternType.LITERAL)
    if "*" in allowed:
        return True

    def is_dominated(name: str) -> bool:
        return any(name.startswith(prefix) for prefix in denied_prefixes)

    return any(not is_dominated(name) for name in allowed - denied) or any(
        not is_dominated(name) for name in patterns(PermissionType.ALLOW, PatternType.PREFIXED)
    )


def decided(steps: Iterator[bool | None]) -> bool:
    """What was decided in steps: only the last one decides."""
    *unfinished, decision = steps
    assert decision is not None and set(unfinished) <= {None}
    return decision
