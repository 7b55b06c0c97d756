"""AlterClientQuotas: set and remove client quotas."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.quotas import decide_alter_client_quotas
from runnel.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AnsweredEntryData,
)
from runnel.model.errors import ApiError


@handles(AlterClientQuotasRequest)
async def alter_client_quotas(request: AlterClientQuotasRequest, ctx: Context) -> AlterClientQuotasResponse:
    """Alter the quotas of each entity independently.

    v1 flexible
    """
    try:
        return await ctx.broker.metadata.change(lambda image: decide_alter_client_quotas(image, request))
    except ApiError as error:
        return AlterClientQuotasResponse(
            entries=[AnsweredEntryData(error.code, str(error), entry.entity) for entry in request.entries]
        )
