"""DescribeConfigs: every setting of topics, brokers, groups and client metrics subscriptions."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller import describe_configs as controller
from runnel.controller.config_broker_node import ADMIN_LISTENERS, OFF
from runnel.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from runnel.model.configs import ConfigSource, ResourceType
from runnel.model.pauses import SHOWN_AS as LOOP_PAUSES

_STRING = 2


@handles(DescribeConfigsRequest)
def describe_configs(request: DescribeConfigsRequest, ctx: Context) -> DescribeConfigsResponse:
    """All settings with their values and sources, including defaults.

    v1 sources and synonyms · v3 types and documentation · v4 flexible
    """
    metadata = ctx.broker.metadata
    response = controller.describe_configs(metadata.image, metadata.settings, ctx.broker.node_id, request)
    for asked, result in zip(request.resources, response.results, strict=True):
        is_broker = asked.resource_type == ResourceType.BROKER and asked.resource_name
        if is_broker:
            _show_admin_addresses(result, ctx)
        if is_broker and not result.error_code and LOOP_PAUSES in (asked.configuration_keys or ()):
            result.configs.append(_loop_pauses(ctx))
    return response


def _show_admin_addresses(result: DescribeConfigsResult, ctx: Context) -> None:
    """Where the admin listener is, with the port that was chosen: that is how clients find it."""
    for config in result.configs:
        if config.name == ADMIN_LISTENERS:
            config.value = ",".join(ctx.broker.admin_addresses) or OFF


def _loop_pauses(ctx: Context) -> DescribeConfigsResourceResult:
    # Not a setting, so it is not listed: `runnel bench` requests it by name.
    return DescribeConfigsResourceResult(
        name=LOOP_PAUSES,
        value=ctx.broker.loop_pauses.to_text(),
        read_only=True,
        config_source=ConfigSource.DEFAULT,
        config_type=_STRING,
    )
