"""BrokerRegistration: a broker joins the cluster."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.registrations import ClusterIdentity, register_broker
from runnel.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse


@handles(BrokerRegistrationRequest)
async def broker_registration(request: BrokerRegistrationRequest, ctx: Context) -> BrokerRegistrationResponse:
    """Register a broker, fenced at first.

    v1 left over from the move off ZooKeeper · v2 log directories · v3 previous epoch · v4 feature ranges
    """
    broker = ctx.broker
    sessions, settings = broker.duties.sessions, broker.settings
    identity = ClusterIdentity(broker.cluster_id, broker.quorum.kraft_version)
    response = await broker.metadata.change_in_steps(
        lambda image: register_broker(
            image, settings, sessions, request, identity, broker.clock.monotonic_ms()
        )
    )
    broker.duties.watch()
    return response
