"""BrokerHeartbeat: keep the session of a broker, and change its state."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.broker_heartbeats import broker_heartbeat as process
from runnel.controller.broker_heartbeats import renew_session
from runnel.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


@handles(BrokerHeartbeatRequest)
async def broker_heartbeat(request: BrokerHeartbeatRequest, ctx: Context) -> BrokerHeartbeatResponse:
    """Renew a session; unfence, fence or stop the broker as requested and as its state permits.

    v1 failed log directories · v2 cordoned log directories
    """
    broker = ctx.broker
    sessions, settings = broker.duties.sessions, broker.settings
    now_ms = broker.clock.monotonic_ms()
    # It is alive, however long the rest takes.
    sessions.contacted(request.broker_id, request.broker_epoch, now_ms)
    registration = broker.metadata.image.brokers.get(request.broker_id)
    if registration is not None and registration.epoch == request.broker_epoch:
        # The connection of another process proves nothing about the broker.
        broker.duties.connected(request.broker_id, ctx.session)
    response = broker.metadata.read_ahead(
        lambda committed, ahead: renew_session(committed, ahead, sessions, request, now_ms)
    )
    if response is None:
        response = await broker.metadata.change_in_steps(
            lambda image: process(image, settings, sessions, request, now_ms)
        )
    broker.duties.watch()
    return response
