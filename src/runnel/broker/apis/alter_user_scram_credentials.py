"""AlterUserScramCredentials: store and delete credentials."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.scram import decide_alter_scram_credentials
from runnel.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from runnel.model.errors import ApiError


@handles(AlterUserScramCredentialsRequest)
async def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, ctx: Context
) -> AlterUserScramCredentialsResponse:
    """The client salts and hashes: the broker never receives a password."""
    try:
        return await ctx.broker.metadata.change(lambda image: decide_alter_scram_credentials(image, request))
    except ApiError as error:
        users = [deletion.name for deletion in request.deletions]
        users += [upsertion.name for upsertion in request.upsertions]
        return AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(user, error.code, str(error)) for user in dict.fromkeys(users)
            ]
        )
