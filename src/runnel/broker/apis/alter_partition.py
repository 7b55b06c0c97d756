"""AlterPartition: the leader of partitions proposes new ISRs."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.alter_partition import alter_partitions
from runnel.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse


@handles(AlterPartitionRequest)
async def alter_partition(request: AlterPartitionRequest, ctx: Context) -> AlterPartitionResponse:
    """Change the ISRs that are valid, each partition independently.

    v2 topic ids · v3 broker epochs of the members
    """
    settings, version = ctx.broker.settings, ctx.api_version
    return await ctx.broker.metadata.change_in_steps(
        lambda image: alter_partitions(image, settings, request, version)
    )
