"""Which quota applies to a client, and with which others it shares that: Kafka's order of precedence.

    user and client id · user and any client id · user · any user and client id · any user and any client id
    · any user · client id · any client id

The first entity with the key decides. A quota of users is shared by all clients of a user, one of client ids
by all users of that id, and one of pairs by nothing else; the default of a type is a quota for each of its
names.
"""

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

USER, CLIENT_ID, ADDRESS = "user", "client-id", "ip"
PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE = "request_percentage", "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
CLIENT_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)

Entity = tuple[tuple[str, str | None], ...]
"""(type, name) pairs in the order of types; the name None is the default of its type."""
StoredQuotas = Mapping[Entity, Mapping[str, float]]


class Sharing(NamedTuple):
    """The clients that share a quota: all with this user name and client id; None for any."""

    user: str | None
    client_id: str | None


class Applied(NamedTuple):
    """A quota that applies to a client."""

    limit: float
    sharing: Sharing


def applied_quota(quotas: StoredQuotas, key: str, user: str, client_id: str) -> Applied | None:
    """The quota with this key for a client; None if it has none."""
    for entity, sharing in _by_precedence(user, client_id):
        values = quotas.get(entity)
        if values is not None and key in values:
            return Applied(values[key], sharing)
    return None


def _by_precedence(user: str, client_id: str) -> Iterator[tuple[Entity, Sharing]]:
    pair = Sharing(user, client_id)
    for user_name in (user, None):
        of_user = (USER, user_name)
        yield ((CLIENT_ID, client_id), of_user), pair
        yield ((CLIENT_ID, None), of_user), pair
        yield (of_user,), Sharing(user, None)
    for client_name in (client_id, None):
        yield ((CLIENT_ID, client_name),), Sharing(None, client_id)


def address_limit(quotas: StoredQuotas, host: str) -> float | None:
    """The connections per second that an IP address may open; None if it has no quota."""
    for name in (host, None):
        limit = quotas.get(((ADDRESS, name),), {}).get(CONNECTION_CREATION_RATE)
        if limit is not None:
            return limit
    return None


def canonical_address(host: str) -> str:
    """An IP address as quotas name it: a dual-stack socket shows IPv4 clients as mapped IPv6 addresses.

    A scope id may follow; a text that is not an address is returned unchanged.
    """
    try:
        address: IPv4Address | IPv6Address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
