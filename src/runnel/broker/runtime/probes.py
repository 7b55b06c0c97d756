"""Has the process of a node ended? Then its host refuses connections to the address it has registered.

A process that was killed is recognized within milliseconds this way. All else, such as a host that does not
answer, proves nothing: timeouts decide.
"""

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from runnel.messages.api_versions import ApiVersionsRequest
from runnel.model.security_protocol import SecurityProtocol
from runnel.ports.peers import PeerFailed, PeerRefused, Peers

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker
    from runnel.controller.values import Endpoint

REFUSALS = 2
"""The number of refusals in a row that is required: a live broker reconnects meanwhile."""

INTERVAL_MS = 25
TIMEOUT_MS = 250

ANY_BROKER_VERSION = 0
"""The version of ApiVersions that every node supports, so that nothing is negotiated."""


class Probe(Enum):
    """The outcome of a probe."""

    ANSWERS = 0
    REFUSES = 1
    UNKNOWN = 2
    """It does not respond, or closed the connection: a socket that is being closed may still accept some."""


async def probe(broker: "Broker", peers: Peers, host: str, port: int) -> Probe:
    """Send ApiVersions to a node."""
    channel = peers.channel(host, port, f"node-{broker.node_id}-probe")
    try:
        await channel.send(ApiVersionsRequest(), version=ANY_BROKER_VERSION, timeout_ms=TIMEOUT_MS)
        return Probe.ANSWERS
    except PeerRefused:
        return Probe.REFUSES
    except PeerFailed:
        return Probe.UNKNOWN
    finally:
        channel.close()


async def probe_broker(broker: "Broker", endpoint: "Endpoint") -> Probe:
    """Send ApiVersions to a broker."""
    is_known = endpoint.name == broker.listener
    if is_known or not SecurityProtocol(endpoint.security_protocol).uses_tls:
        return await probe(broker, broker.peers, endpoint.host, endpoint.port)
    # A node that is only a controller does not connect to brokers otherwise: it has no other TLS.
    return await probe(broker, broker.to_controllers, endpoint.host, endpoint.port)


async def probe_silent(broker: "Broker", broker_id: int, is_silent: Callable[[], bool]) -> Probe:
    """Probe a broker until it answers or its process has ended; UNKNOWN if it is not silent before."""
    endpoint = broker_endpoint(broker, broker_id)
    if endpoint is None:
        return Probe.UNKNOWN
    refusals = 0
    while is_silent():
        found = await probe_broker(broker, endpoint)
        refusals = refusals + 1 if found is Probe.REFUSES else 0
        if found is Probe.ANSWERS or refusals == REFUSALS:
            return found
        await asyncio.sleep(INTERVAL_MS / 1000)
    return Probe.UNKNOWN


def broker_endpoint(broker: "Broker", broker_id: int) -> "Endpoint | None":
    """The address of a broker for other brokers."""
    registration = broker.metadata.image.brokers.get(broker_id)
    endpoints = registration.endpoints if registration is not None else ()
    of_brokers = (endpoint for endpoint in endpoints if endpoint.name == broker.listener)
    return next(of_brokers, next(iter(endpoints), None))


async def majority_has_ended(broker: "Broker") -> bool:
    """Whether so many voters of the quorum have ended that no controller can be elected."""
    quorum = broker.quorum
    others = (voter for voter in quorum.voters if voter.key.id != broker.node_id)
    endpoints = [endpoint for voter in others if (endpoint := voter.endpoint(quorum.membership.listener))]
    found = await asyncio.gather(
        *(probe(broker, broker.to_controllers, each.host, each.port) for each in endpoints)
    )
    return len(quorum.voters) - found.count(Probe.REFUSES) < quorum.voters.majority
