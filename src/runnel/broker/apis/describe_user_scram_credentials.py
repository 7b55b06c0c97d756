"""DescribeUserScramCredentials: users with SCRAM credentials, without keys and salts."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.scram import describe_scram_credentials
from runnel.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)


@handles(DescribeUserScramCredentialsRequest)
def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, ctx: Context
) -> DescribeUserScramCredentialsResponse:
    """Mechanisms and iterations of all users or of the requested ones."""
    return describe_scram_credentials(ctx.broker.metadata.image, request)
