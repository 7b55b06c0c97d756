"""CreateAcls: not supported, no authorizer is configured."""

from runnel.broker.apis.describe_acls import NO_AUTHORIZER
from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from runnel.model.errors import ErrorCode


@handles(CreateAclsRequest)
def create_acls(request: CreateAclsRequest, ctx: Context) -> CreateAclsResponse:
    """SECURITY_DISABLED for each creation.

    v2 flexible · v3 user resources
    """
    refused = AclCreationResult(ErrorCode.SECURITY_DISABLED.code, NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused for _ in request.creations])
