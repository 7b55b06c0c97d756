"""DeleteAcls: delete the ACLs that filters select."""

from runnel.broker.apis.describe_acls import NO_AUTHORIZER, check_codes, has_authorizer
from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.acls import delete_acls as delete
from runnel.controller.acls import matching_acls
from runnel.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from runnel.model.errors import ApiError, ErrorCode
from runnel.security.acl_filter import AclFilter


@handles(DeleteAclsRequest)
async def delete_acls(request: DeleteAclsRequest, ctx: Context) -> DeleteAclsResponse:
    """Delete ACLs, and return those that each filter selected; SECURITY_DISABLED without an authorizer.

    v2 flexible · v3 user resources
    """
    if not has_authorizer(ctx):
        return _refused(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    for each in request.filters:
        check_codes(each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type)
    filters = [
        AclFilter(
            each.resource_type_filter,
            each.resource_name_filter,
            each.pattern_type_filter,
            each.principal_filter,
            each.host_filter,
            each.operation,
            each.permission_type,
        )
        for each in request.filters
    ]
    try:
        found = await ctx.broker.metadata.change_in_steps(lambda image: delete(image, filters))
    except ApiError as error:
        return _refused(request, error.error, str(error))
    ctx.is_large = True
    return DeleteAclsResponse(filter_results=[matching_acls(acls) for acls in found])


def _refused(request: DeleteAclsRequest, error: ErrorCode, message: str) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(error.code, message)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
