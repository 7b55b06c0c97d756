"""Changes of this broker's configs that name files: tried out here, before the controller stores them.

Only this node can read its files. A client therefore sends such a change to the broker that it is for, as
with Kafka.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from runnel.controller.config_broker import LISTENER_PREFIX
from runnel.messages import alter_configs, incremental_alter_configs
from runnel.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from runnel.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from runnel.model.configs import AlterOperation, ResourceType
from runnel.model.errors import ErrorCode
from runnel.ports.gates import CLUSTER_NAME, Operation, Permission
from runnel.ports.gates import ResourceType as SecuredType
from runnel.ports.service import Session
from runnel.wire import Request, Response

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

TryOut: TypeAlias = Callable[[Mapping[str, str | None]], Awaitable[str | None]]
"""Returns why changes cannot be applied; None if they can. None as a value removes a config."""

_ALTER = Permission(Operation.ALTER_CONFIGS, SecuredType.CLUSTER, CLUSTER_NAME)
_Refusal: TypeAlias = tuple[ErrorCode, str]


def concerns_own_configs(broker: "Broker", request: Request, session: Session) -> bool:
    """Whether a request of a client changes configs of listeners, which are to be tried out first."""
    if broker.try_out is None or not isinstance(
        request, (AlterConfigsRequest, IncrementalAlterConfigsRequest)
    ):
        return False
    if not any(_listener_configs(resource) for resource in request.resources):
        return False
    authorizer = broker.gates.authorizer
    # The controller denies it; its client shall not learn which files exist.
    return authorizer.allows_all(session) or authorizer.allows(session, _ALTER)


async def refused_configs(broker: "Broker", request: Request) -> Response | None:
    """The response to a request with a change that cannot be applied; None if all can."""
    assert isinstance(request, (AlterConfigsRequest, IncrementalAlterConfigsRequest))
    resources: Sequence[_Resource] = request.resources
    refusals = [
        await _refusal(broker, resource) if _listener_configs(resource) else None for resource in resources
    ]
    if not any(refusals):
        return None
    others: _Refusal = (ErrorCode.INVALID_REQUEST, "Another resource of the request is invalid.")
    results = [
        (code.code, message, resource.resource_type, resource.resource_name)
        for resource, (code, message) in zip(
            resources, (refusal or others for refusal in refusals), strict=True
        )
    ]
    if isinstance(request, AlterConfigsRequest):
        return AlterConfigsResponse(
            responses=[alter_configs.AlterConfigsResourceResponse(*result) for result in results]
        )
    return IncrementalAlterConfigsResponse(
        responses=[incremental_alter_configs.AlterConfigsResourceResponse(*result) for result in results]
    )


_Resource: TypeAlias = alter_configs.AlterConfigsResource | incremental_alter_configs.AlterConfigsResource


def _listener_configs(resource: _Resource) -> dict[str, str | None]:
    """The configs of listeners that a request changes, with their new values."""
    if resource.resource_type != ResourceType.BROKER or not resource.resource_name:
        return {}
    return {
        config.name: _new_value(config)
        for config in resource.configs
        if config.name.startswith(LISTENER_PREFIX)
    }


def _new_value(
    config: "alter_configs.AlterableConfig | incremental_alter_configs.AlterableConfig",
) -> str | None:
    operation = getattr(config, "config_operation", AlterOperation.SET)
    return None if operation == AlterOperation.DELETE else config.value


async def _refusal(broker: "Broker", resource: _Resource) -> _Refusal | None:
    if resource.resource_name != str(broker.node_id):
        return ErrorCode.INVALID_REQUEST, (
            f"Unexpected broker id, expected {broker.node_id} or empty string, but received "
            f"{resource.resource_name}"
        )
    assert broker.try_out is not None
    complaint = await broker.try_out(_listener_configs(resource))
    return None if complaint is None else (ErrorCode.INVALID_CONFIG, complaint)
