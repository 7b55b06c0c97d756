"""BrokerRegistration: a broker joins the cluster, or joins it again as a new incarnation.

v1 left over from the move off ZooKeeper · v2 log directories · v3 the epoch before a clean shutdown ·
v4 features whose lowest level is 0
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int16, int32, int64, string, uint16, uuid


class Listener(Struct):
    name: string = ""
    host: string = ""
    port: uint16 = 0
    security_protocol: int16 = 0


class Feature(Struct):
    name: string = ""
    min_supported_version: int16 = 0
    max_supported_version: int16 = 0


class BrokerRegistrationRequest(Request, api=62, versions="0-4", flexible="0+"):
    broker_id: int32 = 0
    cluster_id: string = ""
    incarnation_id: uuid = field()
    listeners: list[Listener] = field()
    features: list[Feature] = field()
    rack: string | None = field()
    is_migrating_zk_broker: boolean = field("1+")
    log_dirs: list[uuid] = field("2+")
    previous_broker_epoch: int64 = field("3+", default=-1)  # -1 after an unclean shutdown


class BrokerRegistrationResponse(Response, api=62, versions="0-4", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    broker_epoch: int64 = -1
