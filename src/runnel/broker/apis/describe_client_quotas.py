"""DescribeClientQuotas: client quotas that match a filter."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.quotas import describe_quotas
from runnel.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from runnel.model.errors import ApiError


@handles(DescribeClientQuotasRequest)
def describe_client_quotas(
    request: DescribeClientQuotasRequest, ctx: Context
) -> DescribeClientQuotasResponse:
    """Match entities by name, by default, or by type.

    v1 flexible
    """
    try:
        return describe_quotas(ctx.broker.metadata.image, request)
    except ApiError as error:
        # Clients treat a non-null list, even an empty one, as success.
        return DescribeClientQuotasResponse(error_code=error.code, error_message=str(error), entries=None)
