"""Forwarding of clients' requests from a broker to the active controller (KIP-590)."""

from ipaddress import ip_address

from runnel.broker.runtime.call import Call
from runnel.broker.runtime.context import Encoded
from runnel.messages.create_partitions import CreatePartitionsRequest
from runnel.messages.create_topics import CreateTopicsRequest
from runnel.messages.delete_topics import DeleteTopicsRequest
from runnel.messages.envelope import EnvelopeRequest
from runnel.messages.principal import PRINCIPAL_VERSION, DefaultPrincipalData
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.limits import FORWARDED_BYTES_MAX
from runnel.ports.service import CloseConnection
from runnel.wire import encoded
from runnel.wire.frame import read_response_header

CHARGED_BY_CONTROLLER = (CreateTopicsRequest, DeleteTopicsRequest, CreatePartitionsRequest)

FORWARD_TIMEOUT_MS = 30_000
"""Kafka's request.timeout.ms of brokers: afterwards the client gets REQUEST_TIMED_OUT and may retry."""


async def forward(call: Call, frame: memoryview) -> Encoded:
    """The controller's response to the request in `frame`."""
    controller = call.broker.controller
    if controller.forwarded_bytes + len(frame) > FORWARDED_BYTES_MAX:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "too many requests wait for the active controller")
    controller.forwarded_bytes += len(frame)
    try:
        return await _forward(call, frame)
    finally:
        controller.forwarded_bytes -= len(frame)


async def _forward(call: Call, frame: memoryview) -> Encoded:
    principal = encoded(DefaultPrincipalData(*call.session.principal), PRINCIPAL_VERSION)
    envelope = EnvelopeRequest(
        # A copy of the pipeline: it is not reused.
        request_data=frame,
        request_principal=PRINCIPAL_VERSION.to_bytes(2, "big") + principal,
        client_host_address=_address(call.session.client_host),
    )
    response = await call.broker.controller.request(envelope, timeout_ms=FORWARD_TIMEOUT_MS)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION.code:
        raise CloseConnection("the controller does not support the version of the request")
    if response.error_code or response.response_data is None:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller returned error {response.error_code}")
    data = memoryview(response.response_data)
    _, position = read_response_header(data, call.route.has_flexible_header)
    body = Encoded(bytes(data[position:]))
    if call.route.request in CHARGED_BY_CONTROLLER:
        # A quota of the controller: the client is throttled here, where it is connected.
        call.throttle(getattr(call.route.decoded(body, call.api_version), "throttle_time_ms", 0))
    return body


def _address(host: str) -> bytes:
    try:
        return ip_address(host).packed
    except ValueError:
        # A connection without an address, in a simulation.
        return bytes(4)
