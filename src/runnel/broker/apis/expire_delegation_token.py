"""ExpireDelegationToken: end the validity of a token, now or later."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.tokens import derive_hmacs
from runnel.controller.tokens import decide_expire_token
from runnel.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


@handles(ExpireDelegationTokenRequest)
async def expire_delegation_token(
    request: ExpireDelegationTokenRequest, ctx: Context
) -> ExpireDelegationTokenResponse:
    """v2 flexible"""
    broker, requester = ctx.broker, ctx.session.principal
    secret, period_ms, now_ms = bytes(request.hmac), request.expiry_time_period_ms, broker.clock.now_ms()
    await derive_hmacs(broker, requester)
    return await broker.metadata.change(
        lambda image: decide_expire_token(
            image, broker.settings, broker.token_ids, secret, period_ms, requester, now_ms
        )
    )
