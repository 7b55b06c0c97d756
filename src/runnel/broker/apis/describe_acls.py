"""DescribeAcls: the ACLs that a filter selects."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.blocking import Job
from runnel.broker.runtime.context import Context
from runnel.controller.acls import STEP, has_unknown_codes
from runnel.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.ports.service import CloseConnection
from runnel.security.acl_filter import AclFilter

T = TypeVar("T")

NO_AUTHORIZER = "No Authorizer is configured on the broker."


@handles(DescribeAclsRequest)
async def describe_acls(request: DescribeAclsRequest, ctx: Context) -> DescribeAclsResponse:
    """The ACLs by resource pattern; SECURITY_DISABLED without an authorizer.

    v2 flexible · v3 user resources
    """
    if not has_authorizer(ctx):
        raise ApiError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    check_codes(
        request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type
    )
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for count, acl in enumerate(list(ctx.broker.metadata.image.acls.values()), 1):
        if wanted.matches(acl):
            pattern = (acl.resource_type, acl.resource_name, acl.pattern_type)
            resource = resources.get(pattern)
            if resource is None:
                resource = resources[pattern] = DescribeAclsResource(*pattern)
            resource.acls.append(AclDescription(acl.principal, acl.host, acl.operation, acl.permission_type))
        if count % STEP == 0:
            ctx.is_large = True
            await asyncio.sleep(0)
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))


def has_authorizer(ctx: Context) -> bool:
    """Whether this node is configured to authorize requests."""
    return bool(ctx.broker.settings["authorizer.class.name"])


def check_codes(resource_type: int, pattern_type: int, operation: int, permission_type: int) -> None:
    """Close the connection of a request with unknown codes, as Kafka does."""
    if has_unknown_codes(resource_type, pattern_type, operation, permission_type):
        raise CloseConnection("an ACL request with an unknown code")


async def in_thread_if_many(ctx: Context, count: int, work: Callable[[], T]) -> T:
    """What `work` returns about so many ACLs."""
    return work() if count <= STEP else await ctx.broker.disk.run_blocking(Job(work))
