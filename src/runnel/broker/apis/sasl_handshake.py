"""SaslHandshake: select the mechanism of an authentication, or of a repeated one (KIP-368)."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise
from runnel.broker.runtime.sasl import connection_of
from runnel.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from runnel.model.errors import ErrorCode


@handles(SaslHandshakeRequest)
def sasl_handshake(request: SaslHandshakeRequest, ctx: Context) -> MaybePromise[SaslHandshakeResponse]:
    """Rejected on listeners without SASL. v1 tokens are sent in SaslAuthenticate"""
    connection = connection_of(ctx)
    if connection is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE.code)
    return connection.handshake(request.mechanism, ctx)
