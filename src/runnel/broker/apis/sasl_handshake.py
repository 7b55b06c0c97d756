"""SaslHandshake: rejected, no listener uses SASL."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from runnel.model.errors import ErrorCode


@handles(SaslHandshakeRequest)
def sasl_handshake(request: SaslHandshakeRequest, ctx: Context) -> SaslHandshakeResponse:
    """ILLEGAL_SASL_STATE. v1 tokens are sent in SaslAuthenticate"""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE.code)
