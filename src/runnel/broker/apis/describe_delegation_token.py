"""DescribeDelegationToken: tokens with their secrets, for clients that may use them."""

from functools import partial

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.blocking import Job
from runnel.broker.runtime.check import Check
from runnel.broker.runtime.context import Context
from runnel.controller.tokens import describe_tokens
from runnel.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from runnel.model.limits import SLICE_ELEMENTS
from runnel.ports.gates import Operation, Permission, ResourceType


@handles(DescribeDelegationTokenRequest)
async def describe_delegation_token(
    request: DescribeDelegationTokenRequest, ctx: Context
) -> DescribeDelegationTokenResponse:
    """v2 flexible · v3 token requester"""
    broker, session = ctx.broker, ctx.session
    permits_all, check = ctx.authorizer.allows_all(session), Check(ctx, request.api_key)
    # A denial is recorded if the client has requested the owner's tokens.
    check_token = check.alternative if request.owners is None else check

    def may_describe(token_id: str, owner: str) -> bool:
        return (
            permits_all
            or check.alternative(Permission(Operation.DESCRIBE_TOKENS, ResourceType.USER, owner))
            or check_token(Permission(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token_id))
        )

    tokens = broker.metadata.image.tokens.copy()
    describe = partial(describe_tokens, tokens, broker.settings, request, session.principal, may_describe)
    if sum(1 + len(token.renewers) for token in tokens.values()) <= SLICE_ELEMENTS:
        return describe()
    ctx.is_large = True
    return await broker.disk.run_blocking(Job(describe))
