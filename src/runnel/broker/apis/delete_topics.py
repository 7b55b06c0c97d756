"""DeleteTopics: delete topics and all their records."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.mutation_charge import MutationCharge
from runnel.controller.topic_changes import decide_delete_topics
from runnel.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from runnel.model.errors import ApiError, ErrorCode

QUOTA_ERRORS_FROM = 5
"""The version from which the partitions of a request may be refused by a quota."""


@handles(DeleteTopicsRequest)
async def delete_topics(request: DeleteTopicsRequest, ctx: Context) -> DeleteTopicsResponse:
    """Delete topics by name or, from v6 on, by id.

    v3 TOPIC_DELETION_DISABLED · v4 flexible · v5 error messages, errors of quotas · v6 topic ids
    """
    metadata = ctx.broker.metadata
    charge = MutationCharge(ctx, is_strict=ctx.api_version >= QUOTA_ERRORS_FROM)
    try:
        response = await metadata.change(
            lambda image: decide_delete_topics(image, metadata.settings, request, charge)
        )
    except ApiError as error:
        response = DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(state.name, state.topic_id, error.code, str(error))
                for state in request.topics
            ]
            + [
                DeletableTopicResult(name, error_code=error.code, error_message=str(error))
                for name in request.topic_names
            ]
        )
    if ctx.api_version < 3:
        for result in response.responses:
            if result.error_code == ErrorCode.TOPIC_DELETION_DISABLED.code:
                result.error_code = ErrorCode.INVALID_REQUEST.code
    return response
