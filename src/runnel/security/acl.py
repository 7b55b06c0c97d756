"""ACLs: which principal may do which operation on which resources, from which hosts.

The codes are Kafka's, on the wire and in the metadata log. A host is an address, `*`, or a range in CIDR
notation, which Kafka does not have: a node of Apache Kafka stores such an ACL, and it never matches there.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import NamedTuple

CLUSTER_NAME = "kafka-cluster"
"""The only resource of type CLUSTER."""

WILDCARD = "*"
"""Every host, and the literal name that matches every resource."""

ANY_USER = "User:*"
"""The principal that every client has besides its own."""


class Operation(IntEnum):
    """What a principal may be allowed to do with a resource."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """What permissions are given on."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of an ACL is compared with that of a resource; ANY and MATCH are for filters."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class PermissionType(IntEnum):
    """What an ACL says; ANY is for filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class Permission(NamedTuple):
    """One operation on one resource."""

    operation: Operation
    resource_type: ResourceType
    name: str


@dataclass(frozen=True, slots=True)
class AccessControlEntry:
    """An ACL: a principal, from a host, may or may not do an operation on resources."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


ALL_OPERATIONS = sum(1 << operation for operation in Operation if operation > Operation.ALL)
"""Operations as a bit field: bit n is the operation with code n."""

_DESCRIBES = 1 << Operation.DESCRIBE
_IMPLIED: dict[int, int] = {
    Operation.ALL: ALL_OPERATIONS,
    Operation.READ: _DESCRIBES,
    Operation.WRITE: _DESCRIBES,
    Operation.DELETE: _DESCRIBES,
    Operation.ALTER: _DESCRIBES,
    Operation.ALTER_CONFIGS: 1 << Operation.DESCRIBE_CONFIGS,
}


def allowed_bits(operation: int) -> int:
    """The operations that an ALLOW of this one permits."""
    return 1 << operation | _IMPLIED.get(operation, 0)


def denied_bits(operation: int) -> int:
    """The operations that a DENY of this one forbids: a DENY implies no other."""
    return ALL_OPERATIONS if operation == Operation.ALL else 1 << operation


class Range(NamedTuple):
    """Addresses of one IP version with the same leading bits; a single address is the smallest range."""

    version: int
    length: int
    """How many bits are the same."""
    prefix: int


Address = Range | str
"""The address of a client; its text if it is not an address, as in a simulation."""

_WIDTHS = {4: 32, 6: 128}
_MAPPED_BITS = 96
"""The leading bits of IPv6 addresses that stand for IPv4 addresses."""


@lru_cache(maxsize=4096)
def parse_address(host: str) -> Address:
    """The address of a client."""
    try:
        parsed = ip_address(host)
    except ValueError:
        return host
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return Range(parsed.version, _WIDTHS[parsed.version], int(parsed))


@lru_cache(maxsize=4096)
def parse_host(host: str) -> Address:
    """The host of an ACL: a range, or its text, with which only equal texts match."""
    if "/" not in host:
        return parse_address(host)
    try:
        network = ip_network(host, strict=False)
    except ValueError:
        return host
    version, length, first = network.version, network.prefixlen, network.network_address
    if isinstance(first, IPv6Address) and first.ipv4_mapped is not None and length >= _MAPPED_BITS:
        # As the addresses of clients.
        version, length, first = 4, length - _MAPPED_BITS, first.ipv4_mapped
    return Range(version, length, int(first) >> (_WIDTHS[version] - length))


def enclosing(address: Range, length: int) -> Range:
    """The range of this length that an address is in."""
    return Range(address.version, length, address.prefix >> (address.length - length))


def is_malformed_range(host: str) -> bool:
    """Whether a host looks like a range but is not valid: an ACL with it would never match."""
    return "/" in host and isinstance(parse_host(host), str)
