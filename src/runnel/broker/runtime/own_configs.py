"""Changes of this broker's configs that name files: validated here, before the controller stores them.

Only this node can read its files. A client therefore sends such a change to the broker that it is for, as
with Kafka.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from runnel.broker.runtime.blocking import Job
from runnel.controller.config_broker import LISTENER_PREFIX, broker_definition
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

ValidateConfigs: TypeAlias = Callable[[Mapping[str, str | None]], Awaitable[str | None]]
"""Returns why changes cannot be applied; None if they can. None as a value removes a config."""

_ALTER = Permission(Operation.ALTER_CONFIGS, SecuredType.CLUSTER, CLUSTER_NAME)


def concerns_own_configs(broker: "Broker", request: Request, session: Session) -> bool:
    """Whether a request of a client changes configs of listeners, which are to be validated first."""
    if broker.validate_configs is None or not isinstance(
        request, (AlterConfigsRequest, IncrementalAlterConfigsRequest)
    ):
        return False
    if not any(map(_names_listener, request.resources)):
        return False
    authorizer = broker.gates.authorizer
    # The controller denies it; its client shall not learn which files exist.
    return authorizer.allows_all(session) or authorizer.allows(session, _ALTER)


async def refused_configs(broker: "Broker", request: Request) -> Response | None:
    """The response to a request with a change that cannot be applied; None if all can.

    One resource is validated at most: the controller refuses those that appear twice.
    """
    assert isinstance(request, (AlterConfigsRequest, IncrementalAlterConfigsRequest))
    assert broker.validate_configs is not None
    own_id, run_blocking = str(broker.node_id), broker.disk.run_blocking
    changes, has_others = await run_blocking(Job(partial(_changes, request, own_id)))
    complaint = await broker.validate_configs(changes) if changes else None
    if complaint is None and not has_others:
        return None
    return await run_blocking(Job(partial(_refused, request, own_id, complaint)))


_Request: TypeAlias = AlterConfigsRequest | IncrementalAlterConfigsRequest
_Resource: TypeAlias = alter_configs.AlterConfigsResource | incremental_alter_configs.AlterConfigsResource


def _names_listener(resource: _Resource) -> bool:
    """Whether a request changes configs of listeners of one broker."""
    if resource.resource_type != ResourceType.BROKER or not resource.resource_name:
        return False
    return any(config.name.startswith(LISTENER_PREFIX) for config in resource.configs)


def _changes(request: _Request, own_id: str) -> tuple[dict[str, str | None], bool]:
    """(the changes of this broker's listeners, whether there are some of other brokers)."""
    resources: Sequence[_Resource] = request.resources
    concerned = [resource for resource in resources if _names_listener(resource)]
    own = next((resource for resource in concerned if resource.resource_name == own_id), None)
    has_others = any(resource.resource_name != own_id for resource in concerned)
    return ({} if own is None else _listener_configs(own)), has_others


def _listener_configs(resource: _Resource) -> dict[str, str | None]:
    """The known configs of listeners that a request changes, with their new values."""
    return {
        config.name: _new_value(config)
        for config in resource.configs
        if config.name.startswith(LISTENER_PREFIX) and broker_definition(config.name) is not None
    }


def _new_value(
    config: "alter_configs.AlterableConfig | incremental_alter_configs.AlterableConfig",
) -> str | None:
    operation = getattr(config, "config_operation", AlterOperation.SET)
    return None if operation == AlterOperation.DELETE else config.value


def _refused(request: _Request, own_id: str, complaint: str | None) -> Response:
    resources: Sequence[_Resource] = request.resources
    results = [
        (*_refusal(resource, own_id, complaint), resource.resource_type, resource.resource_name)
        for resource in resources
    ]
    if isinstance(request, AlterConfigsRequest):
        return AlterConfigsResponse(
            responses=[alter_configs.AlterConfigsResourceResponse(*result) for result in results]
        )
    return IncrementalAlterConfigsResponse(
        responses=[incremental_alter_configs.AlterConfigsResourceResponse(*result) for result in results]
    )


def _refusal(resource: _Resource, own_id: str, complaint: str | None) -> tuple[int, str]:
    if _names_listener(resource):
        if resource.resource_name != own_id:
            return ErrorCode.INVALID_REQUEST.code, (
                f"Unexpected broker id, expected {own_id} or empty string, but received "
                f"{resource.resource_name}"
            )
        if complaint is not None:
            return ErrorCode.INVALID_CONFIG.code, complaint
    return ErrorCode.INVALID_REQUEST.code, "Another resource of the request is invalid."
