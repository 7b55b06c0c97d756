"""CreateTopics: create topics, each independently."""

from functools import partial

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.topic_creation import create_topics as create
from runnel.controller.describe_configs import topic_config_reply
from runnel.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from runnel.model.errors import ApiError


@handles(CreateTopicsRequest)
async def create_topics(request: CreateTopicsRequest, ctx: Context) -> CreateTopicsResponse:
    """Topics are available before the response; the request's timeout has no effect.

    v4 -1 for broker defaults · v5 flexible, settings of the new topic · v7 topic ids
    """
    describe_configs = (
        partial(topic_config_reply, ctx.broker.metadata.settings) if ctx.api_version >= 5 else None
    )
    try:
        return await create(ctx.broker, request, describe_configs)
    except ApiError as error:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(topic.name, error_code=error.code, error_message=str(error))
                for topic in request.topics
            ]
        )
