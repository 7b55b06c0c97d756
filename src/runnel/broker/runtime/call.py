"""One request in flight: the context of its handler, how its response is encoded, and its accounting."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from struct import Struct as Layout
from typing import Any

from runnel.broker.apis.denials import failed_items
from runnel.broker.apis.handlers import Handler
from runnel.broker.apis.rules import Rule
from runnel.broker.runtime.blocking import Job
from runnel.broker.runtime.check import Check
from runnel.broker.runtime.context import Context, Encoded
from runnel.broker.runtime.elements import has_many_elements
from runnel.broker.runtime.promise import BrokenPromise
from runnel.model.errors import ApiError, ErrorCode, NotController
from runnel.ports.disk import FileSlice
from runnel.ports.service import CloseConnection, Reply
from runnel.wire import Request, Response, decode, encode, fields_of

_PREFIX = Layout(">ii").pack
_PREFIX_FLEXIBLE = Layout(">iix").pack


@dataclass(slots=True)
class Route:
    """The handler and codecs of an API in one version."""

    request: type[Request]
    response: type[Response]
    handler: Handler
    rules: tuple[Rule, ...]
    """The required permissions."""
    begins_search: Callable[[Any, Check], bool] | None
    """Begins to search all ACLs of a client, if the rules need that and it takes several steps."""
    bytes_max: int
    """The maximum size of a request, unless it has records."""
    elements_max: int
    """The maximum number of array elements of a request."""
    borrows_frame: bool
    """Does the handler use the frame's memory only within the turn? Others get a copy."""
    is_forwarded: bool
    """Do brokers forward it to the active controller?"""
    has_flexible_header: bool
    has_throttle_time: bool

    def decoded(self, response: Encoded, version: int) -> Response:
        """A response that was encoded before, to be changed."""
        return decode(self.response, version, response.body)


@dataclass(slots=True, eq=False)
class Call(Context):
    """One request in flight: what its handler sees, and how its response is sent."""

    correlation_id: int
    route: Route
    reply: Reply
    request_bytes: int
    began: float
    """When the request was received, in seconds of the monotonic clock."""
    is_accounted: bool = False
    is_validated: bool = False
    """Were the changes of this broker's configs validated?"""
    request: Request | None = None
    """The request, if its response repeats its elements with an error when it fails as a whole."""

    def answer(self, outcome: Response | Encoded | Exception | None) -> None:
        """Fill the reply with the response, with nothing, or with an error."""
        if self.is_accounted and isinstance(outcome, BrokenPromise):
            # The connection was closed, and the request that waited was dropped with it.
            return
        self._count_error(outcome)
        if outcome is None:
            self.reply.is_silent = True
            self._fill([], 0)
        elif self._is_costly(outcome):
            self.broker.run(self._answer_from_thread(outcome))
        else:
            try:
                parts, size_bytes = self._encoded(outcome)
            except Exception as error:  # noqa: BLE001 - _failed reports it
                parts, size_bytes = self._failed(error)
            self._fill(parts, size_bytes)

    def _is_costly(self, outcome: Response | Encoded | Exception) -> bool:
        """Whether to encode a response in a thread; that of an error may have the elements of the request."""
        if isinstance(outcome, Exception) and self.request is not None:
            return self.is_large or has_many_elements(self.request)
        return self.is_large and (isinstance(outcome, Response) or self.request is not None)

    async def _answer_from_thread(self, outcome: Response | Encoded | Exception) -> None:
        try:
            parts, size_bytes = await self.broker.disk.run_blocking(Job(partial(self._encoded, outcome)))
        except Exception as error:  # noqa: BLE001 - _failed reports it
            parts, size_bytes = self._failed(error)
        self._fill(parts, size_bytes)

    def _fill(self, parts: list[Any], size_bytes: int) -> None:
        memory_bytes = size_bytes
        if len(parts) > 1:
            memory_bytes -= sum(part.length for part in parts if type(part) is FileSlice)
        self.session.pending.discard(self)
        if self.close_reason:
            self.reply.close_reason = self.close_reason
        try:
            self.account(size_bytes)
        finally:
            # Whatever fails: the connection must not wait for this reply forever.
            self.reply.fill(parts, memory_bytes)

    def account(self, response_bytes: int) -> None:
        """The request is finished; later calls change nothing."""
        if not self.is_accounted:
            self.is_accounted = True
            api_key = self.route.request.api_key
            accounting = self.broker.gates.accounting
            accounting.account(
                self.session, api_key, self.api_version, 1, self.request_bytes, response_bytes, self.began
            )

    def _count_error(self, outcome: Response | Encoded | Exception | None) -> None:
        """Count a request that failed as a whole."""
        if isinstance(outcome, Exception):
            code = 0 if isinstance(outcome, CloseConnection) else _code(outcome).code
        else:
            code = getattr(outcome, "error_code", 0)
        if code:
            self.broker.gates.accounting.failed(self.route.request.api_key, code)

    def _encoded(self, outcome: Response | Encoded | Exception) -> tuple[list[Any], int]:
        """(the response frame, its size on the wire)."""
        if isinstance(outcome, Exception):
            outcome = self._refusal(outcome)
        if isinstance(outcome, Encoded):
            if not self.throttle_ms:
                return self._framed([outcome.body])
            outcome = self.route.decoded(outcome, self.api_version)
        if self.throttle_ms and self.route.has_throttle_time:
            outcome.throttle_time_ms = self.throttle_ms  # type: ignore[attr-defined]
        return self._framed(encode(outcome, self.api_version))

    def _framed(self, parts: list[Any]) -> tuple[list[Any], int]:
        if len(parts) == 1:
            size_bytes = len(parts[0])
        else:
            size_bytes = sum(part.length if type(part) is FileSlice else len(part) for part in parts)
        if self.route.has_flexible_header:
            parts[0] = _PREFIX_FLEXIBLE(size_bytes + 5, self.correlation_id) + parts[0]
            return parts, size_bytes + 9
        parts[0] = _PREFIX(size_bytes + 4, self.correlation_id) + parts[0]
        return parts, size_bytes + 8

    def _refusal(self, error: Exception) -> Response:
        """The response whose elements have the error; raises it if it is to be at the top level, or a bug."""
        if isinstance(error, NotController):
            self.session.is_refused = True
        is_refused = isinstance(error, (ApiError, NotController))
        if self.request is None or not is_refused or _has_error_code(self.route.response, self.api_version):
            raise error
        if _code(error) is ErrorCode.ILLEGAL_SASL_STATE and has_many_elements(self.request):
            # Who is not authenticated gets no large response.
            raise error
        response = failed_items(self.request, _code(error))
        if response is None:
            raise error
        return response

    def _failed(self, error: Exception) -> tuple[list[Any], int]:
        """The response frame of an error; empty, which closes the connection, if it has no error field."""
        if isinstance(error, CloseConnection):
            self.reply.close_reason = str(error)
            return [], 0
        if not isinstance(error, (ApiError, NotController)):
            self.broker.bugs.report(error, "%s v%d failed", self.route.request.__name__, self.api_version)
        error_code = _code(error)
        response = error_response(self.route.response, self.api_version, error_code.code, str(error))
        if response is None:
            # Before authentication clients may send anything, and the connection is closed anyway.
            if isinstance(error, ApiError) and error_code is not ErrorCode.ILLEGAL_SASL_STATE:
                message = "%s v%d has no field for an error"
                self.broker.bugs.report(error, message, self.route.request.__name__, self.api_version)
            return [], 0
        if self.throttle_ms and self.route.has_throttle_time:
            response.throttle_time_ms = self.throttle_ms  # type: ignore[attr-defined]
        return self._framed(encode(response, self.api_version))


def _code(error: Exception) -> ErrorCode:
    if isinstance(error, ApiError):
        return error.error
    return ErrorCode.NOT_CONTROLLER if isinstance(error, NotController) else ErrorCode.UNKNOWN_SERVER_ERROR


def _has_error_code(response: type[Any], version: int) -> bool:
    return any(field.name == "error_code" and field.versions.covers(version) for field in fields_of(response))


def error_response(response: type[Any], version: int, code: int, message: str) -> Response | None:
    """A response with only an error code; None if it has no such field."""
    present = {field.name for field in fields_of(response) if field.versions.covers(version)}
    if "error_code" not in present:
        return None
    if "error_message" in present:
        # The message of a bug is for the log; that of an ApiError was written for the client.
        text = message if code != ErrorCode.UNKNOWN_SERVER_ERROR.code else None
        failure: Response = response(error_code=code, error_message=text)
    else:
        failure = response(error_code=code)
    return failure
