"""Responses to what a client may not do, or no controller decides, built from the declarations of messages.

An element of a response repeats the names and indexes of the request's element that it answers, and carries
the error; where it has elements of its own that can carry an error, so do they. Built from declarations, a
denial needs no handler, and no message is imported before it is used.
"""

from collections.abc import Callable
from typing import Any

from runnel.messages.registry import api
from runnel.model.errors import ErrorCode
from runnel.wire import Request, Response, fields_of
from runnel.wire.primitives import ArrayOf, StructOf
from runnel.wire.struct import Field, Struct

Denied = Callable[[Any, ErrorCode], Response]
"""The response to a request that is denied as a whole."""

_CODES = ("error_code", "partition_error_code")
_INDEXES = ("index", "partition_index", "partition", "partition_id")
_NAMES = ("name", "group_id", "transactional_id", "key")
_IDENTITIES = frozenset(
    (*_NAMES, "topic", "topic_id", "resource_type", "resource_name", "producer_id", "user")
)
"""What an element of a response repeats of the request's element: other fields may only have equal names."""
_ALIASES = {"user": "name"}
_UNKNOWN_VALUES = {
    "base_offset": -1,
    "committed_offset": -1,
    "high_watermark": -1,
    "log_append_time_ms": -1,
    "log_start_offset": -1,
    "low_watermark": -1,
    "metadata": "",
    "node_id": -1,
    "offset": -1,
    "port": -1,
    "records": b"",
    "timestamp": -1,
}
"""Values beside an error in Kafka's responses that differ from the declared defaults."""


_FAILED_ARRAYS = {
    0: (("topic_data",), "responses"),  # Produce
    1: (("topics",), "responses"),  # Fetch, up to version 6
    2: (("topics",), "topics"),  # ListOffsets
    3: (("topics",), "topics"),  # Metadata, up to version 12
    8: (("topics",), "topics"),  # OffsetCommit
    9: (("topics",), "topics"),  # OffsetFetch, version 1
    10: (("coordinator_keys",), "coordinators"),  # FindCoordinator, from version 4
    15: (("groups",), "groups"),  # DescribeGroups
    19: (("topics",), "topics"),  # CreateTopics
    20: (("topics", "topic_names"), "responses"),  # DeleteTopics
    21: (("topics",), "topics"),  # DeleteRecords
    23: (("topics",), "topics"),  # OffsetForLeaderEpoch
    24: (("v3_and_below_topics",), "results_by_topic_v3_and_below"),  # AddPartitionsToTxn, up to version 3
    27: (("markers",), "markers"),  # WriteTxnMarkers
    28: (("topics",), "topics"),  # TxnOffsetCommit
    30: (("creations",), "results"),  # CreateAcls
    31: (("filters",), "filter_results"),  # DeleteAcls
    32: (("resources",), "results"),  # DescribeConfigs
    33: (("resources",), "responses"),  # AlterConfigs
    37: (("topics",), "results"),  # CreatePartitions
    42: (("groups_names",), "results"),  # DeleteGroups
    43: (("topic_partitions",), "replica_election_results"),  # ElectLeaders, version 0
    44: (("resources",), "responses"),  # IncrementalAlterConfigs
    49: (("entries",), "entries"),  # AlterClientQuotas
    51: (("deletions", "upsertions"), "results"),  # AlterUserScramCredentials
    61: (("topics",), "topics"),  # DescribeProducers
    65: (("transactional_ids",), "transaction_states"),  # DescribeTransactions
    69: (("group_ids",), "groups"),  # ConsumerGroupDescribe
    75: (("topics",), "topics"),  # DescribeTopicPartitions
}
"""The APIs whose responses, in some versions, have no error code at their top level."""
_OFFSET_FETCH = 9
_FETCHED_GROUPS = (("groups",), "groups")
"""The arrays of OffsetFetch from version 8."""


def failed_items(request: Request, error: ErrorCode) -> Response | None:
    """The response to a request that failed as a whole, with the error in each element; None if not known."""
    if request.api_key not in _FAILED_ARRAYS:
        return None
    arrays, into = _FAILED_ARRAYS[request.api_key]
    if request.api_key == _OFFSET_FETCH and getattr(request, "groups", None):
        arrays, into = _FETCHED_GROUPS
    items = [item for array in arrays for item in getattr(request, array) or ()]
    if not items and error is ErrorCode.ILLEGAL_SASL_STATE:
        # It would look like a success.
        return None
    return empty_response(request, **{into: [denied_item(request, into, item, error) for item in items]})


def denied_items(array: str, into: str, *, with_top_level: bool = False) -> Denied:
    """Every element of the request's array gets the error; `with_top_level`: the response as well."""

    def denied(request: Request, error: ErrorCode) -> Response:
        elements = getattr(request, array) or ()
        fields: dict[str, Any] = {into: [denied_item(request, into, element, error) for element in elements]}
        if with_top_level:
            fields["error_code"] = error.code
        return empty_response(request, **fields)

    return denied


def empty_response(request: Request, **fields: Any) -> Response:
    """The response to a request, with these fields and otherwise defaults."""
    response: Callable[..., Response] = api(request.api_key).response
    return response(**fields)


def denied_item(request: Request, into: str, item: Any, error: ErrorCode) -> Any:
    """The element of the response's array that denies an element of the request."""
    return _denied(_element(api(request.api_key).response, into), item, error)


def _element(struct: Any, array: str) -> Any:
    (field,) = (field for field in fields_of(struct) if field.name == array)
    element = _element_of(field)
    assert element is not None, f"{struct.__name__}.{array} is no array of structs"
    return element


def _element_of(field: Field) -> type[Struct] | None:
    if isinstance(field.type, ArrayOf) and isinstance(field.type.element, StructOf):
        element: type[Struct] = field.type.element.struct
        return element
    return None


def _denied(struct: Any, item: Any, error: ErrorCode) -> Any:
    values: dict[str, Any] = {}
    for field in fields_of(struct):
        name = field.name
        element = _element_of(field)
        if name in _CODES:
            values[name] = error.code
        elif element is not None:
            values[name] = _denied_elements(name, element, item, error)
        elif name in _INDEXES:
            values[name] = item if isinstance(item, int) else _first(item, _INDEXES)
        elif isinstance(item, str) and name in _NAMES:
            values[name] = item
        elif name in _IDENTITIES and hasattr(item, _ALIASES.get(name, name)):
            values[name] = getattr(item, _ALIASES.get(name, name))
        elif name in _UNKNOWN_VALUES:
            values[name] = _UNKNOWN_VALUES[name]
    return struct(**values)


def _denied_elements(name: str, element: type[Struct], item: Any, error: ErrorCode) -> list[Any]:
    """The elements within an element: copied, denied one by one, or none if they cannot carry an error."""
    if isinstance(item, (int, str)):
        return []
    same = getattr(item, name, None)
    if isinstance(same, list) and same and type(same[0]) is element:
        return same
    if not _carries_error(element):
        return []
    arrays = (getattr(item, field.name) for field in fields_of(type(item)) if isinstance(field.type, ArrayOf))
    requested = same if isinstance(same, list) else next(arrays, [])
    return [_denied(element, each, error) for each in requested or ()]


def _carries_error(struct: Any) -> bool:
    return any(
        field.name in _CODES or ((element := _element_of(field)) is not None and _carries_error(element))
        for field in fields_of(struct)
    )


def _first(item: Any, names: tuple[str, ...]) -> int:
    value: int = next(getattr(item, name) for name in names if hasattr(item, name))
    return value
