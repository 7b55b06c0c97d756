"""DescribeConfigs: every setting of topics, brokers, groups and client metrics subscriptions."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller import describe_configs as controller
from runnel.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse


@handles(DescribeConfigsRequest)
def describe_configs(request: DescribeConfigsRequest, ctx: Context) -> DescribeConfigsResponse:
    """All settings with their values and sources, including defaults.

    v1 sources and synonyms · v3 types and documentation · v4 flexible
    """
    metadata = ctx.broker.metadata
    return controller.describe_configs(metadata.image, metadata.settings, ctx.broker.node_id, request)
