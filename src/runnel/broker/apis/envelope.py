"""Envelope: serve a request that a broker forwarded for its client."""

from ipaddress import ip_address

from runnel.broker.apis.handlers import FORWARDED, handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise, chain
from runnel.messages.envelope import EnvelopeRequest, EnvelopeResponse
from runnel.messages.principal import PRINCIPAL_VERSION, DefaultPrincipalData
from runnel.model.errors import ErrorCode
from runnel.model.limits import INLINE_REQUEST_BYTES_MAX
from runnel.ports.service import Session
from runnel.security.principal import Principal
from runnel.wire import MalformedMessage, decode

_API_KEY_BYTES = 2
_VERSION_BYTES = 2


@handles(EnvelopeRequest)
def envelope(request: EnvelopeRequest, ctx: Context) -> MaybePromise[EnvelopeResponse]:
    """The response to the request inside; after NOT_CONTROLLER the broker finds the active controller."""
    if not ctx.broker.controller.is_active:
        return _refused(ErrorCode.NOT_CONTROLLER)
    frame = memoryview(request.request_data)
    if int.from_bytes(frame[:_API_KEY_BYTES], "big") not in FORWARDED:
        return _refused(ErrorCode.INVALID_REQUEST)
    try:
        host = str(ip_address(bytes(request.client_host_address)))
    except ValueError:
        return _refused(ErrorCode.INVALID_REQUEST)
    try:
        principal = _principal(memoryview(request.request_principal or b""))
    except MalformedMessage:
        return _refused(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    session = Session(host, 0, ctx.listener, ctx.session.connection_id, principal, is_forwarded=True)
    session.received = ctx.session.received

    def answer(response: memoryview | None) -> EnvelopeResponse:
        if session.is_refused:
            return _refused(ErrorCode.NOT_CONTROLLER)
        if response is None:
            return _refused(ErrorCode.UNSUPPORTED_VERSION)
        ctx.is_large = ctx.is_large or len(response) > INLINE_REQUEST_BYTES_MAX
        return EnvelopeResponse(response_data=response)

    return chain(ctx.broker.serve_forwarded(frame, session), answer)


def _principal(data: memoryview) -> Principal:
    """The principal of the client. Raises MalformedMessage."""
    if bytes(data[:_VERSION_BYTES]) != PRINCIPAL_VERSION.to_bytes(_VERSION_BYTES, "big"):
        raise MalformedMessage("a principal of an unknown version")
    decoded = decode(DefaultPrincipalData, PRINCIPAL_VERSION, data, _VERSION_BYTES)
    return Principal(decoded.type, decoded.name, decoded.token_authenticated)


def _refused(error: ErrorCode) -> EnvelopeResponse:
    return EnvelopeResponse(error_code=error.code)
