"""CreateDelegationToken: a token for the client, or for another owner."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.check import Check
from runnel.broker.runtime.context import Context
from runnel.controller.tokens import decide_create_token, owner_of, secret_of
from runnel.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import id_text
from runnel.ports.gates import Operation, Permission, ResourceType
from runnel.security.principal import Principal


@handles(CreateDelegationTokenRequest)
async def create_delegation_token(
    request: CreateDelegationTokenRequest, ctx: Context
) -> CreateDelegationTokenResponse:
    """v2 flexible · v3 on behalf of another owner"""
    requester = ctx.session.principal
    owner = owner_of(request, requester)
    try:
        return await _create(request, ctx, owner)
    except ApiError as error:
        return CreateDelegationTokenResponse(
            error.code,
            owner.type,
            owner.name,
            requester.type,
            requester.name,
            issue_timestamp_ms=-1,
            expiry_timestamp_ms=-1,
            max_timestamp_ms=-1,
        )


async def _create(
    request: CreateDelegationTokenRequest, ctx: Context, owner: Principal
) -> CreateDelegationTokenResponse:
    broker, session = ctx.broker, ctx.session
    requester = session.principal
    secret_of(broker.settings, requester)
    if owner != requester:
        permission = Permission(Operation.CREATE_TOKENS, ResourceType.USER, str(owner))
        if not (ctx.authorizer.allows_all(session) or Check(ctx, request.api_key)(permission)):
            raise ApiError(
                ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, f"Tokens of {owner} are not permitted"
            )
    token_id, now_ms = id_text(broker.entropy.id_bytes()), broker.clock.now_ms()
    return await broker.metadata.change(
        lambda image: decide_create_token(image, broker.settings, request, requester, token_id, now_ms)
    )
