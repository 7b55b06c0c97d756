"""ElectLeaders: put preferred leaders back in charge."""

from runnel.broker.context import Context
from runnel.broker.handlers import handles
from runnel.controller.reassignments import decide_elections
from runnel.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse


@handles(ElectLeadersRequest)
async def elect_leaders(request: ElectLeadersRequest, ctx: Context) -> ElectLeadersResponse:
    """A partition whose preferred replica leads already answers ELECTION_NOT_NEEDED.

    v1 unclean elections, top-level error · v2 flexible
    """
    return await ctx.broker.metadata.change(lambda image: decide_elections(image, request))
