"""DescribeAcls: not supported, no authorizer is configured."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from runnel.model.errors import ApiError, ErrorCode

NO_AUTHORIZER = "No Authorizer is configured on the broker."


@handles(DescribeAclsRequest)
def describe_acls(request: DescribeAclsRequest, ctx: Context) -> DescribeAclsResponse:
    """SECURITY_DISABLED, as Kafka returns without an authorizer.

    v2 flexible · v3 user resources
    """
    raise ApiError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
