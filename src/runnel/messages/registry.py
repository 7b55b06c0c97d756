"""Every API by its key. Message modules are imported on first use, which keeps startup fast."""

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from runnel.wire import Request, Response

# key: (name, first flexible version). The version is listed here because the request header is decoded
# before the message module is imported.
_TABLE: dict[int, tuple[str, int | None]] = {
    0: ("Produce", 9),
    1: ("Fetch", 12),
    2: ("ListOffsets", 6),
    3: ("Metadata", 9),
    8: ("OffsetCommit", 8),
    9: ("OffsetFetch", 6),
    10: ("FindCoordinator", 3),
    11: ("JoinGroup", 6),
    12: ("Heartbeat", 4),
    13: ("LeaveGroup", 4),
    14: ("SyncGroup", 4),
    15: ("DescribeGroups", 5),
    16: ("ListGroups", 3),
    17: ("SaslHandshake", None),
    18: ("ApiVersions", 3),
    19: ("CreateTopics", 5),
    20: ("DeleteTopics", 4),
    21: ("DeleteRecords", 2),
    22: ("InitProducerId", 2),
    23: ("OffsetForLeaderEpoch", 4),
    24: ("AddPartitionsToTxn", 3),
    25: ("AddOffsetsToTxn", 3),
    26: ("EndTxn", 3),
    27: ("WriteTxnMarkers", 1),
    28: ("TxnOffsetCommit", 3),
    29: ("DescribeAcls", 2),
    30: ("CreateAcls", 2),
    31: ("DeleteAcls", 2),
    32: ("DescribeConfigs", 4),
    33: ("AlterConfigs", 2),
    34: ("AlterReplicaLogDirs", 2),
    35: ("DescribeLogDirs", 2),
    36: ("SaslAuthenticate", 2),
    37: ("CreatePartitions", 2),
    38: ("CreateDelegationToken", 2),
    39: ("RenewDelegationToken", 2),
    40: ("ExpireDelegationToken", 2),
    41: ("DescribeDelegationToken", 2),
    42: ("DeleteGroups", 2),
    43: ("ElectLeaders", 2),
    44: ("IncrementalAlterConfigs", 1),
    45: ("AlterPartitionReassignments", 0),
    46: ("ListPartitionReassignments", 0),
    47: ("OffsetDelete", None),
    48: ("DescribeClientQuotas", 1),
    49: ("AlterClientQuotas", 1),
    50: ("DescribeUserScramCredentials", 0),
    51: ("AlterUserScramCredentials", 0),
    52: ("Vote", 0),
    53: ("BeginQuorumEpoch", 1),
    54: ("EndQuorumEpoch", 1),
    55: ("DescribeQuorum", 0),
    56: ("AlterPartition", 0),
    57: ("UpdateFeatures", 0),
    58: ("Envelope", 0),
    59: ("FetchSnapshot", 0),
    60: ("DescribeCluster", 0),
    61: ("DescribeProducers", 0),
    62: ("BrokerRegistration", 0),
    63: ("BrokerHeartbeat", 0),
    64: ("UnregisterBroker", 0),
    65: ("DescribeTransactions", 0),
    66: ("ListTransactions", 0),
    67: ("AllocateProducerIds", 0),
    68: ("ConsumerGroupHeartbeat", 0),
    69: ("ConsumerGroupDescribe", 0),
    70: ("ControllerRegistration", 0),
    71: ("GetTelemetrySubscriptions", 0),
    72: ("PushTelemetry", 0),
    73: ("AssignReplicasToDirs", 0),
    74: ("ListConfigResources", 0),
    75: ("DescribeTopicPartitions", 0),
    76: ("ShareGroupHeartbeat", 0),
    77: ("ShareGroupDescribe", 0),
    78: ("ShareFetch", 0),
    79: ("ShareAcknowledge", 0),
    80: ("AddRaftVoter", 0),
    81: ("RemoveRaftVoter", 0),
    82: ("UpdateRaftVoter", 0),
    83: ("InitializeShareGroupState", 0),
    84: ("ReadShareGroupState", 0),
    85: ("WriteShareGroupState", 0),
    86: ("DeleteShareGroupState", 0),
    87: ("ReadShareGroupStateSummary", 0),
    88: ("StreamsGroupHeartbeat", 0),
    89: ("StreamsGroupDescribe", 0),
    90: ("DescribeShareGroupOffsets", 0),
    91: ("AlterShareGroupOffsets", 0),
    92: ("DeleteShareGroupOffsets", 0),
}

FLEXIBLE_FROM: dict[int, int] = {key: first for key, (_, first) in _TABLE.items() if first is not None}
"""For `runnel.wire.frame.read_request_header`."""

API_NAMES: dict[int, str] = {key: name for key, (name, _) in _TABLE.items()}


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its request and response types."""

    key: int
    name: str
    request: type[Request]
    response: type[Response]


@cache
def api(key: int) -> Api:
    """The API with this key; KeyError if there is none."""
    name = API_NAMES[key]
    module = import_module(f"runnel.messages.{module_name(name)}")
    return Api(key, name, getattr(module, name + "Request"), getattr(module, name + "Response"))


def api_named(name: str) -> Api:
    """The API with this name, or with this key in digits; KeyError if there is none."""
    if name.isdigit():
        return api(int(name))
    return api({known.lower(): key for key, known in API_NAMES.items()}[name.lower()])


def module_name(api_name: str) -> str:
    """ListOffsets is declared in list_offsets.py."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", api_name).lower()
