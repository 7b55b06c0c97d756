"""RenewDelegationToken: extend the validity of a token."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.tokens import derive_hmacs
from runnel.controller.tokens import decide_renew_token
from runnel.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


@handles(RenewDelegationTokenRequest)
async def renew_delegation_token(
    request: RenewDelegationTokenRequest, ctx: Context
) -> RenewDelegationTokenResponse:
    """v2 flexible"""
    broker, requester = ctx.broker, ctx.session.principal
    secret, period_ms, now_ms = bytes(request.hmac), request.renew_period_ms, broker.clock.now_ms()
    await derive_hmacs(broker, requester)
    return await broker.metadata.change(
        lambda image: decide_renew_token(
            image, broker.settings, broker.token_ids, secret, period_ms, requester, now_ms
        )
    )
