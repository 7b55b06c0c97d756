"""CreateAcls: create ACLs."""

from functools import partial

from runnel.broker.apis.describe_acls import (
    NO_AUTHORIZER,
    check_codes,
    has_authorizer,
    in_thread_if_many,
)
from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.acls import create_acls as create
from runnel.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from runnel.model.errors import ApiError, ErrorCode


@handles(CreateAclsRequest)
async def create_acls(request: CreateAclsRequest, ctx: Context) -> CreateAclsResponse:
    """Create each ACL that is valid and does not exist; SECURITY_DISABLED without an authorizer.

    v2 flexible · v3 user resources
    """
    broker, creations = ctx.broker, request.creations
    if not has_authorizer(ctx):
        refused = AclCreationResult(ErrorCode.SECURITY_DISABLED.code, NO_AUTHORIZER)
        return CreateAclsResponse(results=[refused] * len(creations))
    await in_thread_if_many(ctx, len(creations), partial(_check_codes, creations))
    try:
        results = await broker.metadata.change_in_steps(
            lambda image: create(image, creations, broker.entropy.id_bytes)
        )
    except ApiError as error:
        return CreateAclsResponse(results=[AclCreationResult(error.code, str(error))] * len(creations))
    return CreateAclsResponse(results=results)


def _check_codes(creations: list[AclCreation]) -> None:
    for each in creations:
        check_codes(each.resource_type, each.resource_pattern_type, each.operation, each.permission_type)
