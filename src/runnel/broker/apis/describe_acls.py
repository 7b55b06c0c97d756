"""DescribeAcls: there are no access rules while there is no security."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from runnel.model.errors import ApiError, ErrorCode

NO_AUTHORIZER = "No Authorizer is configured on the broker."


@handles(DescribeAclsRequest)
def describe_acls(request: DescribeAclsRequest, ctx: Context) -> DescribeAclsResponse:
    """SECURITY_DISABLED, which clients and consoles know how to take.

    v2 flexible · v3 user resources
    """
    raise ApiError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
