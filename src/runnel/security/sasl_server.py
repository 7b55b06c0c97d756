"""The server's side of SASL: the states of one connection. No I/O here.

| state         | ApiVersions | SaslHandshake       | SaslAuthenticate | any other API |
|---------------|-------------|---------------------|------------------|---------------|
| INITIAL       | once        | → HANDSHAKEN        | closed           | closed        |
| VERSIONED     | closed      | → HANDSHAKEN        | closed           | closed        |
| HANDSHAKEN    | 34, closed  | 34, closed          | a token          | 34, closed    |
| AUTHENTICATED | served      | → HANDSHAKEN, again | 34               | served        |
| … and expired | closed      | → HANDSHAKEN, again | closed           | closed        |
| FAILED        | closed      | closed              | closed           | closed        |

34 is ILLEGAL_SASL_STATE. After version 0 of SaslHandshake tokens are frames without a header. A mechanism
returns a challenge, or the identity of the client, or work that takes milliseconds, which the caller does in
a thread and passes back. Re-authentication (KIP-368) must keep the principal and the mechanism.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import NamedTuple, Protocol

from runnel.security.principal import Principal

SASL_HANDSHAKE_KEY = 17
API_VERSIONS_KEY = 18
SASL_AUTHENTICATE_KEY = 36

REAUTHENTICATION_INTERVAL_MS_MIN = 1000
"""A connection that authenticates more often is refused, as in Kafka."""


class AuthenticationFailed(Exception):
    """The client is not who it claims to be. The text is for the log: all clients receive the same one."""


class UnsupportedMechanism(Exception):
    """The client requested a mechanism that the listener does not offer."""


class IllegalState(Exception):
    """The client sent what its state does not permit: it receives ILLEGAL_SASL_STATE."""


class Unanswerable(Exception):
    """The client sent what its state does not permit: the connection is closed without a response."""


class Moment(NamedTuple):
    """Now, on the wall clock for credentials and on a monotonic clock for sessions."""

    wall_ms: int
    monotonic_ms: int


class Challenge(NamedTuple):
    """The exchange continues: the token to send."""

    token: bytes


class Accepted(NamedTuple):
    """The client has proved its identity."""

    principal: Principal
    token: bytes = b""
    """The last token to send."""
    expires_at_ms: int | None = None
    """When the credential expires, on the wall clock."""


class Work(NamedTuple):
    """A step that takes milliseconds: `run` it in a thread. It may raise AuthenticationFailed."""

    run: Callable[[], "Outcome"]


Outcome = Challenge | Accepted
Step = Outcome | Work


class ServerMechanism(Protocol):
    """One authentication by one mechanism."""

    def receive(self, token: bytes, now_ms: int) -> Step:
        """The next token of the client, on the wall clock. Raises AuthenticationFailed."""
        ...


class OfferedMechanism(NamedTuple):
    """A mechanism of a listener."""

    begin: Callable[[], ServerMechanism]
    session_ms_max: int = 0
    """`connections.max.reauth.ms`: how long an authentication lasts; 0 is forever."""


def shown(text: str) -> str:
    """Untrusted text in a form that may be logged: short, and without control characters."""
    return ascii(text[:100])


class State(Enum):
    """What a connection may send next."""

    INITIAL = auto()
    VERSIONED = auto()
    HANDSHAKEN = auto()
    AUTHENTICATED = auto()
    FAILED = auto()


class SaslExchange:
    """The authentication of one connection, and its repetitions."""

    def __init__(self, offered: Mapping[str, OfferedMechanism]) -> None:
        self._offered = offered
        self.state = State.INITIAL
        self.mechanism = ""
        """The mechanism of the handshake."""
        self.expects_bare_tokens = False
        self.session_lifetime_ms = 0
        """How long the last authentication is valid; 0 is forever."""
        self._exchange: ServerMechanism | None = None
        self._is_working = False
        self._expires_at_ms: int | None = None
        self._authenticated_as: tuple[str, Principal] | None = None
        self._repeated_at_ms: int | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the client is authenticated, and does not authenticate again at the moment."""
        return self.state is State.AUTHENTICATED

    @property
    def was_completed(self) -> bool:
        """Whether the client has authenticated at least once."""
        return self._authenticated_as is not None

    @property
    def mechanisms(self) -> list[str]:
        """The names of the mechanisms."""
        return list(self._offered)

    def has_expired(self, now: Moment) -> bool:
        """Whether the client must authenticate again before it sends anything else."""
        return self._expires_at_ms is not None and now.monotonic_ms >= self._expires_at_ms

    def check(self, api_key: int, now: Moment) -> None:
        """Whether a request with this API key may be decoded. Raises IllegalState or Unanswerable."""
        if self.state is State.AUTHENTICATED:
            if api_key != SASL_HANDSHAKE_KEY and self.has_expired(now):
                raise Unanswerable("the session has expired, and the client did not authenticate again")
        elif self.state is State.HANDSHAKEN:
            if self._is_working:
                raise Unanswerable("a request before authentication is complete")
            if api_key != SASL_AUTHENTICATE_KEY:
                raise IllegalState("only SaslAuthenticate is expected after SaslHandshake")
        elif self.state is State.FAILED:
            raise Unanswerable("authentication has failed")
        elif api_key == API_VERSIONS_KEY:
            if self.state is not State.INITIAL:
                raise Unanswerable("ApiVersions was sent twice before authentication")
        elif api_key != SASL_HANDSHAKE_KEY:
            raise Unanswerable(f"a request with API key {api_key} before authentication")

    def versions_sent(self) -> None:
        """ApiVersions was answered in full."""
        if self.state is State.INITIAL:
            self.state = State.VERSIONED

    def fail(self) -> None:
        """Nothing more is accepted from the client."""
        self.state = State.FAILED
        self.expects_bare_tokens = False
        self._exchange = None

    def handshake(self, mechanism: str, version: int, now: Moment) -> None:
        """The client selects a mechanism. Raises UnsupportedMechanism or IllegalState."""
        if self.state is State.AUTHENTICATED:
            self._begin_again(now)
        offered = self._offered.get(mechanism)
        if offered is None:
            self.fail()
            raise UnsupportedMechanism(mechanism)
        self.mechanism = mechanism
        self.expects_bare_tokens = version == 0
        self._exchange = offered.begin()
        self.state = State.HANDSHAKEN

    def _begin_again(self, now: Moment) -> None:
        last = self._repeated_at_ms
        if last is not None and now.monotonic_ms - last < REAUTHENTICATION_INTERVAL_MS_MIN:
            raise IllegalState("re-authentication more than once a second")
        self._repeated_at_ms = now.monotonic_ms

    def receive(self, token: bytes, now: Moment) -> Step:
        """A token of the client; Work is passed back to `settle`. Raises AuthenticationFailed."""
        assert self._exchange is not None and not self._is_working, "check was not asked"
        if self._authenticated_as is not None and self._authenticated_as[0] != self.mechanism:
            self.fail()
            raise Unanswerable("re-authentication with another mechanism")
        try:
            step = self._exchange.receive(token, now.wall_ms)
            if isinstance(step, Work):
                self._is_working = True
                return step
            return self._advance(step, now)
        except AuthenticationFailed:
            self.fail()
            raise

    def settle(self, outcome: Outcome | AuthenticationFailed, now: Moment) -> Outcome:
        """The work is done. Raises AuthenticationFailed."""
        self._is_working = False
        try:
            if isinstance(outcome, AuthenticationFailed):
                raise outcome
            return self._advance(outcome, now)
        except AuthenticationFailed:
            self.fail()
            raise

    def _advance(self, outcome: Outcome, now: Moment) -> Outcome:
        if isinstance(outcome, Challenge):
            return outcome
        known = self._authenticated_as
        if known is not None and known[1] != outcome.principal:
            raise AuthenticationFailed("re-authentication as another principal")
        lifetimes = [self._offered[self.mechanism].session_ms_max]
        if outcome.expires_at_ms is not None:
            remaining_ms = outcome.expires_at_ms - now.wall_ms
            if remaining_ms <= 0:
                raise AuthenticationFailed("the credential has expired")
            lifetimes.append(remaining_ms)
        self.session_lifetime_ms = min((each for each in lifetimes if each > 0), default=0)
        has_end = self.session_lifetime_ms > 0
        self._expires_at_ms = now.monotonic_ms + self.session_lifetime_ms if has_end else None
        self._authenticated_as = self.mechanism, outcome.principal
        self._exchange = None
        self.expects_bare_tokens = False
        self.state = State.AUTHENTICATED
        return outcome
