"""BrokerHeartbeat: a registered broker is alive, and requests to be unfenced, fenced or shut down.

v1 failed log directories · v2 cordoned log directories
"""

from __future__ import annotations

from runnel.wire import Request, Response, boolean, field, int16, int32, int64, uuid


class BrokerHeartbeatRequest(Request, api=63, versions="0-2", flexible="0+"):
    broker_id: int32 = 0
    broker_epoch: int64 = -1
    current_metadata_offset: int64 = 0  # the last offset that is applied
    want_fence: boolean = False
    want_shut_down: boolean = False
    offline_log_dirs: list[uuid] = field("1+", tag=0)  # since the broker started
    cordoned_log_dirs: list[uuid] | None = field("2+", default=None, tag=1)  # null: no change


class BrokerHeartbeatResponse(Response, api=63, versions="0-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    is_caught_up: boolean = False
    is_fenced: boolean = True
    should_shut_down: boolean = False
