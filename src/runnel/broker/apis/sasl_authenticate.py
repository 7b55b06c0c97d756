"""SaslAuthenticate: rejected, no listener uses SASL."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from runnel.model.errors import ErrorCode


@handles(SaslAuthenticateRequest)
def sasl_authenticate(request: SaslAuthenticateRequest, ctx: Context) -> SaslAuthenticateResponse:
    """ILLEGAL_SASL_STATE. v1 session lifetime · v2 flexible"""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE.code,
        error_message=f"the listener {ctx.listener} does not use SASL",
    )
