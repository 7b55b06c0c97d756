"""DeleteAcls: not supported, no authorizer is configured."""

from runnel.broker.apis.describe_acls import NO_AUTHORIZER
from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from runnel.model.errors import ErrorCode


@handles(DeleteAclsRequest)
def delete_acls(request: DeleteAclsRequest, ctx: Context) -> DeleteAclsResponse:
    """SECURITY_DISABLED for each filter.

    v2 flexible · v3 user resources
    """
    refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED.code, NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[refused for _ in request.filters])
