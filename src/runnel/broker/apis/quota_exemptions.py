"""Requests whose time does not count towards a client's request_percentage, as in Kafka."""

from runnel.broker.apis.replica_requests import is_replica
from runnel.messages.fetch import FetchRequest
from runnel.messages.produce import ProduceRequest
from runnel.messages.write_txn_markers import WriteTxnMarkersRequest
from runnel.wire import Request


def is_exempt_from_request_quota(request: Request, *, is_denied: bool) -> bool:
    """Does the sender expect no response that could state a throttle time, or is it a broker?

    Who is denied what brokers do is none.
    """
    if isinstance(request, ProduceRequest):
        return request.acks == 0
    if is_denied:
        return False
    if isinstance(request, FetchRequest):
        return is_replica(request)
    return isinstance(request, WriteTxnMarkersRequest)
