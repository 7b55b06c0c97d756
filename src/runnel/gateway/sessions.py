"""Who uses the gateway: one client of the cluster for each person who logged in, one for all if none has to.

Credentials are kept in the memory of this process only, for as long as the session lasts; the browser has a
random token in a cookie. A session without requests is closed.
"""

import asyncio
import secrets
from collections.abc import Iterable, Mapping

from runnel.client.cluster import Cluster
from runnel.client.errors import AuthenticationFailed, ClientError
from runnel.gateway.cluster_data import ClusterData
from runnel.gateway.options import GatewayOptions

REQUEST_TIMEOUT_S = 15.0
API_TIMEOUT_S = 4.0
"""How long a page waits for a cluster that does not answer; it asks again by itself."""

IDLE_S = 1800.0
REAP_INTERVAL_S = 30.0
LOGIN_VALID_S = 600.0
"""How long credentials are used before brokers are asked again whether they accept them: a page that is read
again and again keeps its session, and a connection that was accepted once stays open."""
SESSIONS_MAX = 200
RECENT = 5
SESSIONS_OF_ONE_MAX = 20
"""Sessions of one user: with as many as it likes, one could end those of all others."""
LOGINS_AT_ONCE = 4
LOGINS_WAITING_MAX = 100
"""More are refused: all who can reach the gateway may send any number of them."""
TOKEN_BYTES = 32
COOKIE = "runnel_session"

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
_CREDENTIALS = (
    "sasl.jaas.config",
    "sasl.username",
    "sasl.oauthbearer.token",
    "sasl.oauthbearer.token.command",
    "sasl.oauthbearer.token.endpoint.url",
)


class LoginFailed(Exception):
    """The broker did not accept the credentials; the message is shown to the person."""

    def __init__(self, message: str, status: int = 401) -> None:
        super().__init__(message)
        self.status = status


class Session:
    """A person's client of the cluster."""

    def __init__(self, options: GatewayOptions, properties: Mapping[str, str], name: str) -> None:
        self.properties = properties
        self.name = name
        """Who acts, for the page and the log; empty without a login."""
        self.cluster = Cluster(
            options.bootstrap,
            client_id="runnel-gateway",
            timeout_s=REQUEST_TIMEOUT_S,
            api_timeout_s=API_TIMEOUT_S,
            properties=properties,
        )
        self.data = ClusterData(self.cluster, is_restricted=bool(name))
        self.used_s = asyncio.get_running_loop().time()
        self.accepted_s = self.used_s
        """When a broker has accepted the credentials last."""
        self.streams = 0
        """Streams that are open; a session with one is not idle."""
        self.searches = 0
        """Searches through topics that run."""

    def touch(self) -> None:
        """The session is in use."""
        self.used_s = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Close its connections."""
        await self.data.close()
        await self.cluster.close()


class Sessions:
    """All sessions of a gateway."""

    def __init__(self, options: GatewayOptions) -> None:
        self._options = options
        self.needs_login = needs_login(options.properties)
        self._open: Session | None = None
        self._by_token: dict[str, Session] = {}
        self._logins = asyncio.Semaphore(LOGINS_AT_ONCE)
        self._waiting = 0
        """Logins that are not decided."""
        self._reaper: asyncio.Task[None] | None = None

    def of(self, token: str | None) -> Session | None:
        """The session of a request; None if its person has to log in."""
        if not self.needs_login:
            if self._open is None:
                self._open = Session(self._options, self._options.properties, "")
            self._open.touch()
            return self._open
        session = None if token is None else self._by_token.get(token)
        if session is not None:
            session.touch()
        return session

    def recent(self) -> list[Session]:
        """The sessions that were used last; without logins there is always one."""
        if not self.needs_login:
            return [found for found in (self.of(None),) if found is not None]
        return sorted(self._by_token.values(), key=lambda session: -session.used_s)[:RECENT]

    async def login(self, mechanism: str, username: str, password: str) -> str:
        """Connect with these credentials; returns the token of a new session. Raises LoginFailed."""
        if mechanism not in MECHANISMS:
            raise LoginFailed("this mechanism is not supported")
        if not password or (not username and mechanism != "OAUTHBEARER"):
            raise LoginFailed("enter your name and your password")
        own = credentials(mechanism, username, password)
        properties = {**self._options.properties, **own}
        if self._waiting >= LOGINS_WAITING_MAX:
            raise LoginFailed("too many people log in: try again in a moment", 503)
        self._waiting += 1
        try:
            async with self._logins:
                session = await self._logged_in(properties, username)
        except AuthenticationFailed:
            raise LoginFailed("the broker did not accept these credentials") from None
        except ClientError as error:
            raise LoginFailed(str(error)) from None
        finally:
            self._waiting -= 1
        await self._make_room(username)
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self._by_token[token] = session
        if self._reaper is None:
            self._reaper = asyncio.create_task(self._reap())
        return token

    async def _logged_in(self, properties: Mapping[str, str], username: str) -> Session:
        """A session whose credentials a broker has accepted. Raises ClientError."""
        session = Session(self._options, properties, username or "token")
        try:
            await session.cluster.any_connection()
        except BaseException:
            await session.close()
            raise
        return session

    async def logout(self, token: str | None) -> None:
        """End a session."""
        session = self._by_token.pop(token or "", None)
        if session is not None:
            await session.close()

    async def close(self) -> None:
        """End all sessions."""
        if self._reaper is not None:
            self._reaper.cancel()
        sessions = [*self._by_token.values(), *([self._open] if self._open is not None else [])]
        self._by_token.clear()
        self._open = None
        await asyncio.gather(*(session.close() for session in sessions))

    async def _make_room(self, username: str) -> None:
        """End sessions that were not used for longest, for one more of a user; tokens do not name theirs."""
        own = [token for token, session in self._by_token.items() if session.name == username]
        while len(own) >= SESSIONS_OF_ONE_MAX:
            oldest = min(own, key=self._used_s)
            own.remove(oldest)
            await self.logout(oldest)
        while len(self._by_token) >= SESSIONS_MAX:
            await self.logout(min(self._by_token, key=self._used_s))

    def _used_s(self, token: str) -> float:
        session = self._by_token.get(token)
        return 0.0 if session is None else session.used_s

    async def _reap(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(REAP_INTERVAL_S)
            idle = [
                token
                for token, session in self._by_token.items()
                if not session.streams and loop.time() - session.used_s > IDLE_S
            ]
            for token in idle:
                await self.logout(token)
            await self._check_all()

    async def _check_all(self) -> None:
        """End the sessions whose credentials brokers do not accept any more."""
        now_s = asyncio.get_running_loop().time()
        for token, session in list(self._by_token.items()):
            if now_s - session.accepted_s < LOGIN_VALID_S:
                continue
            try:
                fresh = await self._logged_in(session.properties, session.name)
            except AuthenticationFailed:
                await self.logout(token)
            except ClientError:
                # No broker answers; the next time, perhaps.
                return
            else:
                await fresh.close()
                session.accepted_s = asyncio.get_running_loop().time()


def token_of(cookies: Iterable[str]) -> str | None:
    """The token in Cookie headers; None without one.

    Ours is never quoted. What other pages of this host have set may be, and http.cookies, by which Starlette
    parses cookies, takes quadratic time to remove backslashes.
    """
    for header in cookies:
        for cookie in header.split(";"):
            name, _, value = cookie.partition("=")
            if name.strip() == COOKIE:
                return value.strip()
    return None


def needs_login(properties: Mapping[str, str]) -> bool:
    """Does the listener ask for credentials that the properties do not have?"""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    return protocol.startswith("SASL_") and not any(name in properties for name in _CREDENTIALS)


def credentials(mechanism: str, username: str, password: str) -> dict[str, str]:
    """The client properties of a person's credentials. Raises LoginFailed if they cannot be such."""
    # References are resolved in values, so that ${file:…} in a password would read a file of this machine.
    if "${" in username or "${" in password:
        raise LoginFailed("names and passwords with ${ are not supported here")
    if mechanism == "OAUTHBEARER":
        return {"sasl.mechanism": mechanism, "sasl.oauthbearer.token": password}
    return {"sasl.mechanism": mechanism, "sasl.username": username, "sasl.password": password}
