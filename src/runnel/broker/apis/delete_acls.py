"""DeleteAcls: delete the ACLs that filters select."""

from functools import partial

from runnel.broker.apis.describe_acls import (
    NO_AUTHORIZER,
    check_codes,
    has_authorizer,
    in_thread_if_many,
)
from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.acls import delete_acls as delete
from runnel.controller.acls import matching_acls
from runnel.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.security.acl import AccessControlEntry
from runnel.security.acl_filter import AclFilter


@handles(DeleteAclsRequest)
async def delete_acls(request: DeleteAclsRequest, ctx: Context) -> DeleteAclsResponse:
    """Delete ACLs, and return those that each filter selected; SECURITY_DISABLED without an authorizer.

    v2 flexible · v3 user resources
    """
    if not has_authorizer(ctx):
        return _refused(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    count = len(request.filters)
    filters = await in_thread_if_many(ctx, count, partial(_filters, request.filters))
    try:
        found = await ctx.broker.metadata.change_in_steps(lambda image: delete(image, filters))
    except ApiError as error:
        return _refused(request, error.error, str(error))
    ctx.is_large = True
    count += sum(map(len, found))
    results = await in_thread_if_many(ctx, count, partial(_results, found))
    return DeleteAclsResponse(filter_results=results)


def _filters(requested: list[DeleteAclsFilter]) -> list[AclFilter]:
    """Raises CloseConnection."""
    filters = []
    for each in requested:
        kind, pattern_type = each.resource_type_filter, each.pattern_type_filter
        check_codes(kind, pattern_type, each.operation, each.permission_type)
        filters.append(
            AclFilter(
                kind,
                each.resource_name_filter,
                pattern_type,
                each.principal_filter,
                each.host_filter,
                each.operation,
                each.permission_type,
            )
        )
    return filters


def _results(found: list[list[AccessControlEntry]]) -> list[DeleteAclsFilterResult]:
    return [matching_acls(acls) for acls in found]


def _refused(request: DeleteAclsRequest, error: ErrorCode, message: str) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(error.code, message)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
