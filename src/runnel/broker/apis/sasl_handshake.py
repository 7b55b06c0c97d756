"""SaslHandshake: refused, as no listener of this broker asks who is there."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from runnel.model.errors import ErrorCode


@handles(SaslHandshakeRequest)
def sasl_handshake(request: SaslHandshakeRequest, ctx: Context) -> SaslHandshakeResponse:
    """Say that this listener has no SASL. v1 tokens travel in SaslAuthenticate"""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE.code)
