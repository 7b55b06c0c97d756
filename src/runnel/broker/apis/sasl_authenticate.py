"""SaslAuthenticate: one token of an authentication."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise
from runnel.broker.runtime.sasl import connection_of
from runnel.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from runnel.model.errors import ErrorCode


@handles(SaslAuthenticateRequest)
def sasl_authenticate(
    request: SaslAuthenticateRequest, ctx: Context
) -> MaybePromise[SaslAuthenticateResponse]:
    """Rejected on listeners without SASL, and unless it follows a handshake.

    v1 session lifetime · v2 flexible
    """
    connection = connection_of(ctx)
    if connection is None or connection.is_complete:
        reason = "it follows no SaslHandshake" if connection else f"the listener {ctx.listener} has no SASL"
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE.code, error_message=reason)
    return connection.authenticate(bytes(request.auth_bytes), ctx)
