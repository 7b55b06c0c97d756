"""Requests that a simulated network never delivers late, because they cannot be recognised as such.

A producer of a client before KIP-890 keeps its epoch from one transaction to the next. A marker that arrives
after the next transaction has begun ends that one: neither the protocol nor the leader of the partition can
distinguish them. Apache Kafka has the same gap, which clients close by being up to date.
"""

from runnel.messages.registry import FLEXIBLE_FROM
from runnel.messages.write_txn_markers import WriteTxnMarkersRequest
from runnel.wire import decode
from runnel.wire.frame import read_request_header

_API = WriteTxnMarkersRequest.api_key.to_bytes(2, "big")
BUMPING_VERSION = 2
"""The transaction protocol whose markers carry an epoch of their own."""


def has_marker_of_older_client(chunk: bytes) -> bool:
    """Does a chunk of whole requests end a transaction of a client before KIP-890?"""
    position = 0
    while position + 8 <= len(chunk):
        end = position + 4 + int.from_bytes(chunk[position : position + 4], "big")
        if chunk[position + 4 : position + 6] == _API and end <= len(chunk):
            frame = memoryview(chunk)[position + 4 : end]
            header = read_request_header(frame, FLEXIBLE_FROM)
            request = decode(WriteTxnMarkersRequest, header.api_version, frame, header.body_position)
            if any(marker.transaction_version < BUMPING_VERSION for marker in request.markers):
                return True
        position = end
    return False
