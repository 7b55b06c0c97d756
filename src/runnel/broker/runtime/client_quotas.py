"""Client quotas in force: what each client has used, and how long it is throttled.

    producer_byte_rate         the bytes of produce requests
    consumer_byte_rate         the bytes of fetch responses
    request_percentage         the time of the event loop; 100 is all of it
    controller_mutation_rate   partitions created and deleted, on the node that decides
    connection_creation_rate   connections of an IP address

The quotas are those of the metadata image. A change takes effect with a client's next request; what was used
before still counts, unless another entity's quota applies now. The quotas that apply to a connection are
looked up once for each principal and client id, and a broker without quotas looks up nothing.
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from runnel.broker.runtime.controller_channel import LOCAL_CONNECTION
from runnel.messages.produce import ProduceRequest
from runnel.ports.service import Session
from runnel.security.principal import Principal
from runnel.security.quotas.buckets import Buckets
from runnel.security.quotas.entities import (
    ADDRESS,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    StoredQuotas,
    address_limit,
    applied_quota,
    canonical_address,
)
from runnel.security.quotas.rates import SampledRate, TokenBucket, Windows

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker
    from runnel.ports.clock import Clock

BYTES_MAX = 2**31 - 1
PERCENT = 100


@dataclass(slots=True)
class Limited:
    """A rate that is shared by some clients, and its limit."""

    rate: SampledRate
    limit: float

    def throttle_ms(self, now_ms: int) -> int:
        return self.rate.throttle_ms(self.limit, now_ms)


@dataclass(slots=True)
class LimitedMutations:
    """The tokens that are shared by some clients, and the limit at which they are earned."""

    bucket: TokenBucket
    limit: float
    clock: "Clock"

    def throttle_ms(self) -> int:
        return self.bucket.throttle_ms(self.limit, self.clock.monotonic_ms())

    def charge(self, partitions: int) -> None:
        self.bucket.take(partitions, self.limit, self.clock.monotonic_ms())


@dataclass(slots=True)
class SessionQuotas:
    """The quotas that apply to a connection; None where there is none."""

    version: int
    principal: Principal
    client_id: str | None
    produce: Limited | None = None
    fetch: Limited | None = None
    request: Limited | None = None
    mutations: LimitedMutations | None = None

    @property
    def is_limited(self) -> bool:
        """Do bytes or time have to be measured?"""
        return self.produce is not None or self.fetch is not None or self.request is not None


class ClientQuotas:
    """The quotas of all clients of a node."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._clock = broker.clock
        settings = broker.settings
        self._windows = Windows(settings["quota.window.num"], settings["quota.window.size.seconds"])
        self._mutation_windows = Windows(
            settings["controller.quota.window.num"], settings["controller.quota.window.size.seconds"]
        )
        self._stored: StoredQuotas = {}
        self._has_client_quotas = False
        self._has_address_quotas = False
        self._version = 0
        """Changes whenever what was looked up for a connection may no longer hold."""
        self._rates: dict[str, Buckets[SampledRate]] = {
            key: Buckets() for key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, ADDRESS)
        }
        self._tokens: Buckets[TokenBucket] = Buckets()

    def changed(self) -> None:
        """Quotas in the metadata image may have changed."""
        self._stored = stored = self._broker.metadata.image.quotas
        self._has_address_quotas = any(entity[0][0] == ADDRESS for entity in stored)
        self._has_client_quotas = any(entity[0][0] != ADDRESS for entity in stored)
        self._version += 1

    # -- requests

    def limits(self, session: Session) -> bool:
        """Whether a quota of bytes or time applies to the client."""
        if not self._has_client_quotas:
            session.meter = None
            return False
        return self._quotas_of(session).is_limited

    def throttle_ms(self, session: Session, api_key: int, request_bytes: int, *, is_exempt: bool) -> int:
        """Charge a request that is about to be handled; 0 if the client is within its quotas."""
        quotas = self._quotas_of(session)
        now_ms = self._clock.monotonic_ms()
        throttle_ms = 0
        if quotas.produce is not None and api_key == ProduceRequest.api_key:
            quotas.produce.rate.record(request_bytes, now_ms)
            throttle_ms = quotas.produce.throttle_ms(now_ms)
        if quotas.request is not None and not is_exempt:
            session.is_metered = True
            longest_ms = self._windows.seconds * 1000
            throttle_ms = max(throttle_ms, min(quotas.request.throttle_ms(now_ms), longest_ms))
        return throttle_ms

    def fetch_bytes_max(self, session: Session) -> int | None:
        """The size of a fetch response that can be within the quota: a larger one would never be."""
        if not self._has_client_quotas:
            return None
        fetch = self._quotas_of(session).fetch
        return None if fetch is None else int(min(fetch.limit * self._windows.burst_seconds, BYTES_MAX))

    def fetch_throttle_ms(self, session: Session, response_bytes: int) -> int:
        """Charge a fetch response that is about to be sent, unless that exceeds the quota."""
        fetch = self._quotas_of(session).fetch
        if fetch is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        fetch.rate.record(response_bytes, now_ms)
        throttle_ms = fetch.throttle_ms(now_ms)
        if throttle_ms:
            fetch.rate.record(-response_bytes, now_ms)
        return throttle_ms

    def mutations(self, session: Session) -> LimitedMutations | None:
        """The quota of partitions that the client creates and deletes."""
        return self._quotas_of(session).mutations if self._has_client_quotas else None

    def _quotas_of(self, session: Session) -> SessionQuotas:
        quotas: SessionQuotas | None = session.quotas
        if (
            quotas is None
            or quotas.version != self._version
            or quotas.principal is not session.principal
            or quotas.client_id != session.client_id
        ):
            quotas = session.quotas = self._look_up(session)
            session.meter = None if quotas.request is None else partial(self._used, quotas.request.rate)
        return quotas

    def _look_up(self, session: Session) -> SessionQuotas:
        quotas = SessionQuotas(self._version, session.principal, session.client_id)
        client = session.principal.name, session.client_id or ""
        if session.is_forwarded:
            # Its broker has charged the rest.
            quotas.mutations = self._limited_mutations(*client)
        elif not self._is_node(session):
            quotas.mutations = self._limited_mutations(*client)
            quotas.produce = self._limited(PRODUCER_BYTE_RATE, *client)
            quotas.fetch = self._limited(CONSUMER_BYTE_RATE, *client)
            quotas.request = self._limited(REQUEST_PERCENTAGE, *client)
        # If buckets were evicted to make room for these, others are to be looked up again.
        quotas.version = self._version
        return quotas

    def _is_node(self, session: Session) -> bool:
        """Does this node or another send its own requests, to the controller?"""
        is_local = session.connection_id == LOCAL_CONNECTION
        return is_local or session.listener in self._broker.controller_listeners

    def _limited(self, key: str, user: str, client_id: str) -> Limited | None:
        applied = applied_quota(self._stored, key, user, client_id)
        if applied is None:
            return None
        return Limited(self._rate(key, applied.sharing), applied.limit)

    def _rate(self, kind: str, key: object) -> SampledRate:
        buckets = self._rates[kind]
        rate = buckets.get(key)
        if rate is None:
            now_ms = self._clock.monotonic_ms()
            rate = SampledRate(self._windows, now_ms)
            self._version += buckets.add(key, rate, now_ms)
        return rate

    def _limited_mutations(self, user: str, client_id: str) -> LimitedMutations | None:
        applied = applied_quota(self._stored, CONTROLLER_MUTATION_RATE, user, client_id)
        if applied is None:
            return None
        bucket = self._tokens.get(applied.sharing)
        if bucket is None:
            now_ms = self._clock.monotonic_ms()
            bucket = TokenBucket(self._mutation_windows, applied.limit, now_ms)
            self._version += self._tokens.add(applied.sharing, bucket, now_ms)
        return LimitedMutations(bucket, applied.limit, self._clock)

    def _used(self, rate: SampledRate, seconds: float) -> None:
        rate.record(seconds * PERCENT, self._clock.monotonic_ms())

    # -- connections

    def connection_hold_ms(self, host: str) -> int:
        """Charge a new connection of an address; above its quota, how long to hold it before it is closed.

        A connection that is closed is not charged.
        """
        if not self._has_address_quotas:
            return 0
        address = canonical_address(host)
        limit = address_limit(self._stored, address)
        if limit is None:
            return 0
        rate, now_ms = self._rate(ADDRESS, address), self._clock.monotonic_ms()
        rate.record(1, now_ms)
        hold_ms = min(rate.throttle_ms(limit, now_ms), self._windows.seconds * 1000)
        if hold_ms:
            rate.record(-1, now_ms)
        return hold_ms
