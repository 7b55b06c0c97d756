"""CreatePartitions: add partitions to topics."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.mutation_charge import MutationCharge
from runnel.broker.runtime.topic_creation import chance
from runnel.controller.topic_changes import decide_create_partitions
from runnel.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from runnel.model.errors import ApiError

QUOTA_ERRORS_FROM = 3
"""The version from which the partitions of a request may be refused by a quota."""


@handles(CreatePartitionsRequest)
async def create_partitions(request: CreatePartitionsRequest, ctx: Context) -> CreatePartitionsResponse:
    """The new partitions are available before the response.

    v2 flexible · v3 errors of quotas
    """
    broker = ctx.broker
    charge = MutationCharge(ctx, is_strict=ctx.api_version >= QUOTA_ERRORS_FROM)
    try:
        return await broker.metadata.change(
            lambda image: decide_create_partitions(image, request, chance(broker), charge)
        )
    except ApiError as error:
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(topic.name, error.code, str(error)) for topic in request.topics
            ]
        )
