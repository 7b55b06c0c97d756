"""Authentication of the connections of SASL listeners: the shell of `security/sasl_server.py`.

`SaslListener.open` gives a new connection its `SaslConnection`. The pipeline passes every frame to it that is
no repetition of a permitted request; until the client is authenticated it lets only SASL pass. A failure is
answered late, with nothing read meanwhile, and closes the connection.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from struct import Struct as Layout
from typing import TYPE_CHECKING, TypeVar

from runnel.broker.runtime.promise import MaybePromise, Promise
from runnel.messages.sasl_authenticate import SaslAuthenticateResponse
from runnel.messages.sasl_handshake import SaslHandshakeResponse
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.limits import UNAUTHENTICATED_REQUEST_BYTES_MAX
from runnel.ports.clock import Clock, Timers
from runnel.ports.service import CloseConnection, Reply, Session
from runnel.security.login_failures import LoginFailures
from runnel.security.sasl_server import (
    Accepted,
    AuthenticationFailed,
    IllegalState,
    Moment,
    OfferedMechanism,
    Outcome,
    SaslExchange,
    Step,
    Unanswerable,
    UnsupportedMechanism,
    Work,
    shown,
)

if TYPE_CHECKING:
    from runnel.broker.runtime.context import Context

LOGINS_WAITING_MAX = 1000
"""Passwords that wait to be checked in a thread, two seconds of its work; more connections are closed."""

T = TypeVar("T")
_HEAD = Layout(">hh").unpack_from
_SIZE = Layout(">i").pack

ServeFrame = Callable[[memoryview, Session], Reply | None]
Settled = Callable[[Outcome | BaseException], None]
Done = Callable[[Outcome | AuthenticationFailed, int], None]
"""Takes the outcome of a token, and the delay of its answer if it is a failure."""
RunBlocking = Callable[[Callable[[], Outcome], Settled], None]
"""Runs work in a thread, and passes its result or exception to the callback, on the event loop."""


@dataclass(slots=True)
class SaslListener:
    """What the connections of one listener share."""

    mechanisms: Mapping[str, OfferedMechanism]
    clock: Clock
    timers: Timers
    run_blocking: RunBlocking
    failures: LoginFailures
    failure_delay_ms: int = 100
    """`connection.failed.authentication.delay.ms`."""
    receive_bytes_max: int = 512 * 1024
    """`sasl.server.max.receive.size`."""
    waiting_count: int = 0
    """Work in threads that is not done yet."""

    def open(self, session: Session) -> None:
        """A connection was accepted."""
        session.authentication = SaslConnection(self, session)

    def now(self) -> Moment:
        return Moment(self.clock.now_ms(), self.clock.monotonic_ms())


class SaslGate:
    """The authenticator of a node with SASL listeners."""

    def check(self, session: Session, api_key: int) -> None:
        """Raises ApiError, which is answered, or CloseConnection."""
        if session.authentication is not None:
            session.authentication.check(api_key)


class SaslConnection:
    """The authentication of one connection."""

    __slots__ = ("_exchange", "_listener", "_session")

    def __init__(self, listener: SaslListener, session: Session) -> None:
        self._listener = listener
        self._session = session
        self._exchange = SaslExchange(listener.mechanisms)

    @property
    def is_complete(self) -> bool:
        """Whether the client may send any request."""
        return self._exchange.is_complete

    @property
    def was_completed(self) -> bool:
        """Whether the client has authenticated, and perhaps authenticates again."""
        return self._exchange.was_completed

    @property
    def mechanism(self) -> str:
        """The mechanism by which the client authenticates."""
        return self._exchange.mechanism

    def request_bytes_max(self, limit: int) -> int:
        """The largest frame that is received at the moment."""
        if self._exchange.is_complete:
            return limit
        return min(limit, self._listener.receive_bytes_max, UNAUTHENTICATED_REQUEST_BYTES_MAX)

    def check(self, api_key: int) -> None:
        """Whether a decoded request may be handled."""
        try:
            self._exchange.check(api_key, self._listener.now())
        except IllegalState as error:
            raise ApiError(ErrorCode.ILLEGAL_SASL_STATE, str(error)) from None
        except Unanswerable as error:
            raise CloseConnection(str(error)) from None

    def serve(self, frame: memoryview, serve_frame: ServeFrame) -> Reply | None:
        """Serve a frame, if it may be decoded at this point of the exchange. Raises CloseConnection."""
        exchange = self._exchange
        if exchange.is_complete:
            return serve_frame(frame, self._session)
        if exchange.expects_bare_tokens:
            return self._serve_bare_token(bytes(frame))
        if len(frame) < 4:
            raise CloseConnection("a truncated request before authentication")
        api_key = _HEAD(frame)[0]
        is_illegal = False
        try:
            exchange.check(api_key, self._listener.now())
        except Unanswerable as error:
            raise CloseConnection(str(error)) from None
        except IllegalState:
            # Answered in the form of its own API: the pipeline asks again when it is decoded.
            is_illegal = True
        reply = serve_frame(frame, self._session)
        if is_illegal:
            exchange.fail()
            if reply is None:
                raise CloseConnection("a request instead of SaslAuthenticate")
            reply.close_reason = "a request instead of SaslAuthenticate"
        return reply

    def versions_sent(self) -> None:
        """ApiVersions was answered in full."""
        self._exchange.versions_sent()

    def handshake(self, mechanism: str, ctx: "Context") -> MaybePromise[SaslHandshakeResponse]:
        """Answer SaslHandshake."""
        exchange = self._exchange
        offered = exchange.mechanisms
        try:
            exchange.handshake(mechanism, ctx.api_version, self._listener.now())
        except IllegalState:
            return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE.code, offered)
        except UnsupportedMechanism:
            ctx.close_reason = f"authentication failed: unsupported mechanism {shown(mechanism)}"
            refusal = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM.code, offered)
            promise: Promise[SaslHandshakeResponse] = Promise()
            self._resolve_later(promise, refusal, self._failure_delay_ms(0))
            return promise
        return SaslHandshakeResponse(0, offered)

    def authenticate(self, token: bytes, ctx: "Context") -> MaybePromise[SaslAuthenticateResponse]:
        """Answer SaslAuthenticate."""
        promise: Promise[SaslAuthenticateResponse] = Promise()

        def done(outcome: Outcome | AuthenticationFailed, delay_ms: int) -> None:
            if isinstance(outcome, AuthenticationFailed):
                ctx.close_reason = f"authentication failed: {outcome}"
                self._resolve_later(promise, self._refusal(), delay_ms)
            else:
                lifetime_ms = self._exchange.session_lifetime_ms if isinstance(outcome, Accepted) else 0
                promise.resolve(SaslAuthenticateResponse(0, None, outcome.token, lifetime_ms))

        self._receive(token, done)
        return promise

    def _refusal(self) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(
            ErrorCode.SASL_AUTHENTICATION_FAILED.code,
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            + self._exchange.mechanism,
        )

    def _serve_bare_token(self, token: bytes) -> Reply:
        """A token without a header; a failure is only a closed connection."""
        reply = Reply()

        def done(outcome: Outcome | AuthenticationFailed, delay_ms: int) -> None:
            if isinstance(outcome, AuthenticationFailed):
                reply.close_reason = f"authentication failed: {outcome}"
                self._listener.timers.call_later(delay_ms, partial(reply.fill, [], 0))
            else:
                frame = _SIZE(len(outcome.token)) + outcome.token
                reply.fill([frame], len(frame))

        self._receive(token, done)
        reply.mutes_connection = not reply.is_filled
        return reply

    def _receive(self, token: bytes, done: Done) -> None:
        """Pass a token to the mechanism, and its outcome to `done`."""
        listener, began = self._listener, self._listener.now()
        step: Step | AuthenticationFailed
        try:
            step = self._exchange.receive(token, began)
        except Unanswerable as error:
            raise CloseConnection(str(error)) from None
        except AuthenticationFailed as failure:
            step = failure
        if not isinstance(step, Work):
            self._advanced(began, done, step)
            return
        if listener.waiting_count >= LOGINS_WAITING_MAX:
            raise CloseConnection("too many clients are authenticating")
        listener.waiting_count += 1
        listener.run_blocking(step.run, partial(self._settled, began, done))

    def _settled(self, began: Moment, done: Done, result: Outcome | BaseException) -> None:
        """The work of a thread is done."""
        listener, exchange = self._listener, self._exchange
        listener.waiting_count -= 1
        outcome: Outcome | AuthenticationFailed
        if isinstance(result, BaseException) and not isinstance(result, AuthenticationFailed):
            result = AuthenticationFailed(f"{exchange.mechanism}: {type(result).__name__}")
        try:
            outcome = exchange.settle(result, listener.now())
        except AuthenticationFailed as failure:
            outcome = failure
        self._advanced(began, done, outcome)

    def _advanced(self, began: Moment, done: Done, outcome: Outcome | AuthenticationFailed) -> None:
        delay_ms = 0
        if isinstance(outcome, Accepted):
            self._session.principal = outcome.principal
        elif isinstance(outcome, AuthenticationFailed):
            # Counted from the arrival of the token: how long it took to check does not show.
            delay_ms = self._failure_delay_ms(self._listener.now().monotonic_ms - began.monotonic_ms)
        done(outcome, delay_ms)

    def _failure_delay_ms(self, spent_ms: int) -> int:
        listener = self._listener
        own_ms = listener.failures.failed(self._session.client_host, listener.now().monotonic_ms)
        return max(0, max(own_ms, listener.failure_delay_ms) - spent_ms)

    def _resolve_later(self, promise: Promise[T], response: T, delay_ms: int) -> None:
        self._listener.timers.call_later(delay_ms, partial(promise.resolve, response))


def connection_of(ctx: "Context") -> SaslConnection | None:
    """The authentication of a request's connection; None on listeners without SASL."""
    authentication = ctx.session.authentication
    return authentication if isinstance(authentication, SaslConnection) else None
