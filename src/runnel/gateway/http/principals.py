"""Principals: credentials of a request → a client of the cluster that has authenticated with them.

Basic credentials are those of a user with SCRAM or PLAIN, a Bearer token is one of OAUTHBEARER; the broker
decides about them. Requests without credentials use those of the gateway, if it was started with some, or if
the listener asks for none. Connections are kept for the next request with the same credentials.
"""

import asyncio
import base64
import hashlib
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from runnel.client.cluster import Cluster
from runnel.client.errors import AuthenticationFailed, ClientError
from runnel.client.keyed_producer import KeyedProducer
from runnel.client.producer import Producer
from runnel.gateway.http.idempotency import DedupTopics
from runnel.gateway.http.limits import (
    BUFFER_BYTES_MAX,
    DELIVERY_S,
    KEYED_BUFFER_BYTES_MAX,
    LOGIN_VALID_S,
    LOGINS_AT_ONCE,
    LOGINS_WAITING_MAX,
    PRINCIPAL_IDLE_S,
    PRINCIPALS_MAX,
    REFUSED_LOGIN_S,
    REFUSED_LOGINS_MAX,
    REQUESTS_MAX,
    TOPICS_S,
)
from runnel.gateway.http.problems import Problem, problem_of
from runnel.gateway.http.streams.feeds import Feeds
from runnel.gateway.sessions import LoginFailed, credentials, needs_login
from runnel.gateway.shared import Shared
from runnel.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from runnel.gateway.options import GatewayOptions

API_TIMEOUT_S = 8.0
"""An operation with its retries: longer than an election takes, shorter than clients wait."""

METADATA_MAX_AGE_S = 5.0
"""Clients of other gateways recreate topics and add partitions, and expect to use them at once."""

PASSWORD_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""In the order in which they are tried, if the listener has several."""

MECHANISMS_S = 60.0
REAP_INTERVAL_S = 15.0
CLOSE_S = 2.0
CHECK_AGAIN_S = 10.0
"""The pause before credentials are checked again if no broker answers."""


class Principal:
    """A client of the cluster, its producer, and the topics that it follows."""

    def __init__(self, options: "GatewayOptions", properties: Mapping[str, str]) -> None:
        self.cluster = Cluster(
            options.bootstrap,
            client_id="runnel-gateway",
            timeout_s=DELIVERY_S,
            api_timeout_s=API_TIMEOUT_S,
            metadata_max_age_s=METADATA_MAX_AGE_S,
            properties=properties,
        )
        self.feeds = Feeds(self.cluster)
        self.topics = Shared(self.cluster.topics, TOPICS_S)
        """All topics, as they were a moment ago: the metadata of a large cluster are megabytes."""
        self.requests = 0
        """Requests in flight, streams included."""
        self.used_s = asyncio.get_running_loop().time()
        self.accepted_s = self.used_s
        """When a broker has accepted the credentials last."""
        self.checking: asyncio.Task[None] | None = None
        """Asks a broker whether it still does."""
        self.dedup = DedupTopics(self.cluster)
        self._producer: Producer | None = None
        self._keyed_producer: KeyedProducer | None = None

    @property
    def keyed_producer(self) -> KeyedProducer:
        """The producer of records with idempotency keys."""
        if self._keyed_producer is None:
            self._keyed_producer = KeyedProducer(
                self.cluster, buffer_bytes=KEYED_BUFFER_BYTES_MAX, delivery_timeout_s=DELIVERY_S
            )
        return self._keyed_producer

    @property
    def producer(self) -> Producer:
        """The producer; another one after a failure that ended it."""
        if self._producer is None or self._producer.has_failed:
            self._producer = Producer(
                self.cluster,
                buffer_bytes=BUFFER_BYTES_MAX,
                delivery_timeout_s=DELIVERY_S,
                auto_create=False,
            )
        return self._producer

    async def close(self) -> None:
        """Close its connections; what was sent is acknowledged first, if that takes only a moment."""
        if self.checking is not None:
            self.checking.cancel()
        await self.feeds.close()
        with suppress(TimeoutError, ClientError):
            async with asyncio.timeout(CLOSE_S):
                for producer in (self._producer, self._keyed_producer):
                    if producer is not None:
                        await producer.flush()
        if self._keyed_producer is not None:
            await self._keyed_producer.close()
        if self._producer is not None:
            await self._producer.close(flush=False)
        await self.cluster.close()


class Credentials(NamedTuple):
    """The credentials of a request."""

    is_token: bool
    username: str
    secret: str


def read_credentials(authorization: str) -> Credentials:
    """The credentials of a header, which can be written in many ways; 401 if there are none."""
    scheme, _, value = authorization.strip().partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer" and value:
        return Credentials(True, "", value)
    if scheme.lower() != "basic":
        raise Problem(401, "the credentials are neither Basic nor a Bearer token")
    try:
        username, _, password = base64.b64decode(value, validate=True).decode().partition(":")
    except ValueError:
        raise Problem(401, "the Basic credentials are malformed") from None
    if not username or not password:
        raise Problem(401, "the Basic credentials have no name, or no password")
    return Credentials(False, username, password)


class Principals:
    """The principals of a gateway, by their credentials."""

    def __init__(self, options: "GatewayOptions") -> None:
        self._options = options
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, Principal] = {}
        self._logins: dict[bytes, asyncio.Task[Principal]] = {}
        self._turns = asyncio.Semaphore(LOGINS_AT_ONCE)
        self._refused: dict[bytes, float] = {}
        self._mechanisms = Shared(self._enabled_mechanisms, MECHANISMS_S)
        self._reaper: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        protocol = options.properties.get("security.protocol", "PLAINTEXT").upper()
        self.has_logins = protocol.startswith("SASL_")
        """Whether the listener knows users. Without, credentials have no meaning."""

    @asynccontextmanager
    async def use(self, authorization: str | None) -> AsyncIterator[Principal]:
        """The principal of a request, which has a share of its limits until the end of the block."""
        principal = await self.begin(authorization)
        try:
            yield principal
        finally:
            self.end(principal)

    async def begin(self, authorization: str | None) -> Principal:
        """The principal of a request, which has a share of its limits until `end`."""
        principal = await self._of(authorization if self.has_logins else None)
        if principal.requests >= REQUESTS_MAX + principal.feeds.streams:
            raise Problem(429, f"more than {REQUESTS_MAX} requests of this principal are in flight")
        principal.requests += 1
        return principal

    def end(self, principal: Principal) -> None:
        """A request of a principal has ended."""
        principal.requests -= 1
        principal.used_s = asyncio.get_running_loop().time()

    def failed(self, principal: Principal, error: ClientError) -> None:
        """A request of a principal has failed; credentials that are no longer valid are forgotten."""
        if isinstance(error, AuthenticationFailed):
            for key in [key for key, known in self._known.items() if known is principal]:
                del self._known[key]
            closing = asyncio.create_task(principal.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    @property
    def streams(self) -> int:
        """The open streams of all principals."""
        return sum(principal.feeds.streams for principal in self._known.values())

    def stop_streams(self) -> None:
        """End all streams."""
        for principal in self._known.values():
            principal.feeds.stop()

    async def close(self) -> None:
        """Close all connections."""
        if self._reaper is not None:
            self._reaper.cancel()
        for task in self._logins.values():
            task.cancel()
        known, self._known = self._known, {}
        await asyncio.gather(*(principal.close() for principal in known.values()), *self._closing)

    # Authentication.

    async def _of(self, authorization: str | None) -> Principal:
        if authorization is None and self.has_logins and needs_login(self._options.properties):
            raise Problem(401, "send credentials: Basic with a user's name and password, or a Bearer token")
        given = None if authorization is None else read_credentials(authorization)
        # Not the credentials themselves: they would be in every dump of the memory twice.
        key = b"" if given is None else hashlib.blake2b(repr(given).encode(), key=self._key).digest()
        known = self._known.get(key)
        if known is not None:
            if given is not None:
                await self._still_accepted(key, known, given)
            return known
        if self._refused.get(key, 0.0) > asyncio.get_running_loop().time():
            raise Problem(401, "the broker did not accept the credentials")
        login = self._logins.get(key)
        if login is None:
            if given is not None and len(self._logins) >= LOGINS_WAITING_MAX:
                raise Problem(503, "too many logins are waiting")
            login = self._logins[key] = asyncio.create_task(self._log_in(key, given))
            login.add_done_callback(
                lambda task: (self._logins.pop(key), task.cancelled() or task.exception())
            )
        return await asyncio.shield(login)

    async def _log_in(self, key: bytes, given: Credentials | None) -> Principal:
        if given is None:
            principal = Principal(self._options, self._options.properties)
        else:
            async with self._turns:
                try:
                    principal = await self._authenticated(given)
                except AuthenticationFailed as error:
                    self._remember_refusal(key)
                    raise problem_of(error) from None
        await self._make_room()
        self._known[key] = principal
        if self._reaper is None:
            self._reaper = asyncio.create_task(self._reap())
        return principal

    async def _still_accepted(self, key: bytes, principal: Principal, given: Credentials) -> None:
        """Ask a broker again now and then; 401 if it does not accept the credentials any more."""
        if asyncio.get_running_loop().time() < principal.accepted_s + LOGIN_VALID_S:
            return
        if principal.checking is None:
            principal.checking = asyncio.create_task(self._check(key, principal, given))
            principal.checking.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(principal.checking)

    async def _check(self, key: bytes, principal: Principal, given: Credentials) -> None:
        try:
            async with self._turns:
                fresh = await self._authenticated(given)
            await fresh.close()
            principal.accepted_s = asyncio.get_running_loop().time()
        except AuthenticationFailed as error:
            self._remember_refusal(key)
            self.failed(principal, error)
            raise problem_of(error) from None
        except ClientError:
            # The request reports what is wrong, or has a connection that is not affected.
            principal.accepted_s = asyncio.get_running_loop().time() - LOGIN_VALID_S + CHECK_AGAIN_S
        finally:
            principal.checking = None

    async def _authenticated(self, who: Credentials) -> Principal:
        refusal = AuthenticationFailed("no mechanism of the listener fits these credentials")
        for own in await self._candidates(who):
            given = {name: value for name, value in self._options.properties.items() if _is_kept(name)}
            principal = Principal(self._options, {**given, **own})
            try:
                await principal.cluster.any_connection()
            except AuthenticationFailed as error:
                await principal.close()
                refusal = error
            except BaseException:
                await principal.close()
                raise
            else:
                return principal
        raise refusal

    async def _candidates(self, who: Credentials) -> list[dict[str, str]]:
        """Client properties with which the credentials may be accepted."""
        try:
            if who.is_token:
                return [credentials("OAUTHBEARER", "", who.secret)]
            fixed = self._options.properties.get("sasl.mechanism")
            enabled = [fixed] if fixed in PASSWORD_MECHANISMS else await self._mechanisms.get()
            return [
                credentials(mechanism, who.username, who.secret)
                for mechanism in PASSWORD_MECHANISMS
                if mechanism in enabled
            ]
        except LoginFailed as error:
            raise Problem(401, str(error)) from None

    async def _enabled_mechanisms(self) -> list[str]:
        """The mechanisms of the listener, which a handshake without a valid one lists."""
        given = {name: value for name, value in self._options.properties.items() if _is_kept(name)}
        protocol = given["security.protocol"].upper().removeprefix("SASL_")
        async with Cluster(
            self._options.bootstrap,
            timeout_s=DELIVERY_S,
            properties={**given, "security.protocol": "SSL" if protocol == "SSL" else "PLAINTEXT"},
        ) as cluster:
            connection = await cluster.any_connection()
            response = await connection.send(SaslHandshakeRequest(mechanism="?"), SaslHandshakeResponse)
            return list(response.mechanisms)

    def _remember_refusal(self, key: bytes) -> None:
        now_s = asyncio.get_running_loop().time()
        if len(self._refused) >= REFUSED_LOGINS_MAX:
            self._refused = {each: until for each, until in self._refused.items() if until > now_s}
        if len(self._refused) < REFUSED_LOGINS_MAX:
            self._refused[key] = now_s + REFUSED_LOGIN_S

    # Room.

    async def _make_room(self) -> None:
        while len(self._known) >= PRINCIPALS_MAX:
            idle = [key for key, principal in self._known.items() if not principal.requests]
            if not idle:
                raise Problem(503, "too many principals use this gateway")
            oldest = min(idle, key=lambda key: self._known[key].used_s)
            await self._known.pop(oldest).close()

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(REAP_INTERVAL_S)
            now_s = asyncio.get_running_loop().time()
            for key, principal in list(self._known.items()):
                is_known = self._known.get(key) is principal
                if is_known and not principal.requests and now_s - principal.used_s > PRINCIPAL_IDLE_S:
                    del self._known[key]
                    await principal.close()


def _is_kept(name: str) -> bool:
    """Is this a property of the gateway that others use as well: no credential?"""
    return not name.startswith("sasl.")
