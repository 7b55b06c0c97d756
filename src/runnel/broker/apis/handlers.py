"""The supported APIs, their versions and handlers.

`APIS` is the table that ApiVersions returns: the versions of Kafka 4.3, limited to APIs with a handler.
A handler's module is named like its message and imported on the first request of its API, which keeps the
start fast.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from runnel.broker.apis.fetch_in_slices import fetch_in_slices
from runnel.broker.apis.sliced import SLICINGS
from runnel.broker.runtime.promise import Promise
from runnel.broker.runtime.slices import in_slices
from runnel.model.limits import NODE_ELEMENTS_MAX, REQUEST_ELEMENTS_MAX, UNSLICED_ELEMENTS_MAX

if TYPE_CHECKING:
    from runnel.broker.runtime.context import Context, Encoded
    from runnel.wire import Response

Result: TypeAlias = "Response | Encoded | Promise[Any] | None"
"""What a handler returns: a response, the promise of one, or None where no answer is wanted (acks=0)."""
Handler = Callable[[Any, "Context"], Result]
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Api:
    """A supported API: the module of its handler and the accepted versions."""

    module: str
    version_min: int
    version_max: int
    advertised_min: int | None = None
    """The minimum version in ApiVersions responses, if it differs from the minimum accepted."""


APIS: dict[int, Api] = {
    # Versions 0-2 are rejected, but older librdkafka disables compression unless advertised (KAFKA-18659).
    0: Api("produce", 3, 13, advertised_min=0),
    1: Api("fetch", 4, 18),
    2: Api("list_offsets", 1, 11),
    3: Api("metadata", 0, 13),
    8: Api("offset_commit", 2, 10),
    9: Api("offset_fetch", 1, 10),
    10: Api("find_coordinator", 0, 6),
    11: Api("join_group", 0, 9),
    12: Api("heartbeat", 0, 4),
    13: Api("leave_group", 0, 5),
    14: Api("sync_group", 0, 5),
    15: Api("describe_groups", 0, 6),
    16: Api("list_groups", 0, 5),
    17: Api("sasl_handshake", 0, 1),
    18: Api("api_versions", 0, 4),
    19: Api("create_topics", 2, 7),
    20: Api("delete_topics", 1, 6),
    21: Api("delete_records", 0, 2),
    22: Api("init_producer_id", 0, 5),
    23: Api("offset_for_leader_epoch", 2, 4),
    24: Api("add_partitions_to_txn", 0, 5),
    25: Api("add_offsets_to_txn", 0, 4),
    26: Api("end_txn", 0, 5),
    27: Api("write_txn_markers", 1, 2),
    28: Api("txn_offset_commit", 0, 5),
    29: Api("describe_acls", 1, 3),
    30: Api("create_acls", 1, 3),
    31: Api("delete_acls", 1, 3),
    32: Api("describe_configs", 1, 4),
    33: Api("alter_configs", 0, 2),
    35: Api("describe_log_dirs", 1, 5),
    36: Api("sasl_authenticate", 0, 2),
    37: Api("create_partitions", 0, 3),
    38: Api("create_delegation_token", 1, 3),
    39: Api("renew_delegation_token", 1, 2),
    40: Api("expire_delegation_token", 1, 2),
    41: Api("describe_delegation_token", 1, 3),
    42: Api("delete_groups", 0, 2),
    43: Api("elect_leaders", 0, 2),
    44: Api("incremental_alter_configs", 0, 1),
    45: Api("alter_partition_reassignments", 0, 1),
    46: Api("list_partition_reassignments", 0, 0),
    47: Api("offset_delete", 0, 0),
    48: Api("describe_client_quotas", 0, 1),
    49: Api("alter_client_quotas", 0, 1),
    50: Api("describe_user_scram_credentials", 0, 0),
    51: Api("alter_user_scram_credentials", 0, 0),
    52: Api("vote", 0, 2),
    53: Api("begin_quorum_epoch", 0, 1),
    54: Api("end_quorum_epoch", 0, 1),
    55: Api("describe_quorum", 0, 2),
    56: Api("alter_partition", 2, 3),
    57: Api("update_features", 0, 2),
    58: Api("envelope", 0, 0),
    59: Api("fetch_snapshot", 0, 1),
    60: Api("describe_cluster", 0, 2),
    61: Api("describe_producers", 0, 0),
    62: Api("broker_registration", 0, 4),
    63: Api("broker_heartbeat", 0, 2),
    64: Api("unregister_broker", 0, 0),
    65: Api("describe_transactions", 0, 0),
    66: Api("list_transactions", 0, 2),
    67: Api("allocate_producer_ids", 0, 0),
    68: Api("consumer_group_heartbeat", 0, 1),
    69: Api("consumer_group_describe", 0, 1),
    70: Api("controller_registration", 0, 0),
    73: Api("assign_replicas_to_dirs", 0, 0),
    74: Api("list_config_resources", 0, 1),
    75: Api("describe_topic_partitions", 0, 0),
    80: Api("add_raft_voter", 0, 1),
    81: Api("remove_raft_voter", 0, 0),
    82: Api("update_raft_voter", 0, 0),
}

FORWARDED = frozenset((19, 20, 30, 31, 33, 37, 38, 39, 40, 43, 44, 45, 46, 49, 51, 55, 57, 64, 80, 81))
"""APIs of clients that the active controller decides: other brokers forward them to it (KIP-590)."""

_CONTROLLER_ONLY = frozenset((52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82))
"""Requests of brokers to controllers, and of controllers to each other."""

_CONTROLLER_TOO = FORWARDED | {1, 17, 18, 29, 32, 36, 60}

BROKER_APIS = APIS.keys() - _CONTROLLER_ONLY
"""What the listeners for clients and brokers serve."""

CONTROLLER_APIS = APIS.keys() & (_CONTROLLER_ONLY | _CONTROLLER_TOO)
"""What the listeners of a controller serve, as in Kafka."""

PRODUCE_KEY, FETCH_KEY, WRITE_TXN_MARKERS_KEY = 0, 1, 27
CREATE_ACLS_KEY, DELETE_ACLS_KEY = 30, 31

_IN_STEPS = frozenset({FETCH_KEY, WRITE_TXN_MARKERS_KEY, CREATE_ACLS_KEY, DELETE_ACLS_KEY})
"""APIs whose handlers serve large requests in steps of their own."""

_OF_ONE_NODE = frozenset({52, 53, 54, 59, 62, 63, 67, 70, 80, 81, 82})
"""Requests about one node or the one partition of the metadata."""

_registered: dict[int, Handler] = {}


def handles(request: type[Any]) -> Callable[[Function], Function]:
    """Register a `def` or `async def name(request, ctx) -> response` as the handler of a request."""

    def register(function: Function) -> Function:
        api_key: int = request.api_key
        assert api_key in APIS, f"{request.__name__} has no row in APIS"
        assert api_key not in _registered, f"{request.__name__} already has a handler"
        _registered[api_key] = as_handler(function)
        return function

    return register


def as_handler(function: Callable[..., Any]) -> Handler:
    """A function as it is; a coroutine function so that it runs as a task and its response is promised."""
    if not iscoroutinefunction(function):
        return function

    @wraps(function)
    def handler(request: Any, ctx: "Context") -> Promise[Any]:
        return ctx.broker.run(function(request, ctx))

    return handler


def is_sliced(api_key: int) -> bool:
    """Whether requests of an API may have as many elements as only slices can serve."""
    return api_key in _IN_STEPS or (api_key in SLICINGS and api_key != PRODUCE_KEY)


def elements_max(api_key: int) -> int:
    """The maximum number of array elements of a request."""
    if api_key in _OF_ONE_NODE:
        return NODE_ELEMENTS_MAX
    return REQUEST_ELEMENTS_MAX if is_sliced(api_key) else UNSLICED_ELEMENTS_MAX


def handler_of(api_key: int) -> Handler:
    """The handler of a supported API, imported on first use."""
    if api_key not in _registered:
        import_module(f"runnel.broker.apis.{APIS[api_key].module}")
    handler = _registered[api_key]
    if api_key == FETCH_KEY:
        return fetch_in_slices(handler)
    return in_slices(handler, SLICINGS[api_key]) if api_key in SLICINGS else handler
