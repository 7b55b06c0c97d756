"""CreateTopics: create topics, each independently."""

from functools import partial

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.mutation_charge import MutationCharge
from runnel.broker.runtime.topic_creation import create_topics as create
from runnel.controller.describe_configs import topic_config_reply
from runnel.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from runnel.model.errors import ApiError

QUOTA_ERRORS_FROM = 6
"""The version from which the partitions of a request may be refused by a quota."""


@handles(CreateTopicsRequest)
async def create_topics(request: CreateTopicsRequest, ctx: Context) -> CreateTopicsResponse:
    """Topics are available before the response; the request's timeout has no effect.

    v4 -1 for broker defaults · v5 flexible, settings of the new topic · v6 errors of quotas · v7 topic ids
    """
    describe_configs = (
        partial(topic_config_reply, ctx.broker.metadata.settings) if ctx.api_version >= 5 else None
    )
    charge = MutationCharge(ctx, is_strict=ctx.api_version >= QUOTA_ERRORS_FROM)
    try:
        return await create(ctx.broker, request, describe_configs, charge)
    except ApiError as error:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(topic.name, error_code=error.code, error_message=str(error))
                for topic in request.topics
            ]
        )
