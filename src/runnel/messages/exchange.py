"""The sending side of a connection, without I/O: encodes requests, and decodes the responses to them."""

from struct import Struct as Layout

from runnel.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from runnel.messages.registry import api
from runnel.model.errors import ErrorCode
from runnel.wire import Buffer, MalformedMessage, Request, Response, decode
from runnel.wire.frame import NEVER, has_flexible_header, read_response_header, request_frame

_INT16 = Layout(">h")
_INT32 = Layout(">i")


class NoCommonVersion(Exception):
    """Both sides of a connection support an API, but no version in common, or one side does not know it."""


class Exchange:
    """The requests in flight on one connection, and the versions that both sides support.

    Versions are negotiated by ApiVersions, which is always known; the response to it is set with
    `set_api_versions`. A request may also be sent in a given version, without negotiation.
    """

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._expected: dict[int, tuple[type[Response], int]] = {}
        self._next_correlation_id = 0
        self.versions: dict[int, range] = {ApiVersionsRequest.api_key: ApiVersionsRequest.versions}

    def encode(self, request: Request, version: int) -> tuple[int, list[Buffer]]:
        """Encode a request; returns its correlation id and the bytes to send."""
        correlation_id = self._take_correlation_id()
        buffers = request_frame(request, version, correlation_id, self._client_id)
        self._expected[correlation_id] = (api(request.api_key).response, version)
        return correlation_id, buffers

    def encode_oneway(self, request: Request, version: int) -> list[Buffer]:
        """Encode a request without a response (produce with acks=0)."""
        return request_frame(request, version, self._take_correlation_id(), self._client_id)

    def decode(self, frame: memoryview) -> tuple[int, Response]:
        """Decode a response; returns the correlation id of its request. Raises MalformedMessage.

        Byte fields of the response are views of the frame.
        """
        try:
            (correlation_id,) = _INT32.unpack_from(frame)
            response_type, version = self._expected.pop(correlation_id)
        except KeyError:
            raise MalformedMessage(f"unexpected correlation id {correlation_id}") from None
        try:
            _, position = read_response_header(frame, has_flexible_header(response_type, version))
            if response_type is ApiVersionsResponse and _is_unsupported_version(frame):
                # An older broker responds in version 0, with its supported versions (KIP-511).
                version = 0
            return correlation_id, decode(response_type, version, frame, position)
        except MalformedMessage as error:
            raise MalformedMessage(f"malformed {response_type.__name__}: {error}") from error

    def set_api_versions(self, response: ApiVersionsResponse) -> None:
        """Set the versions that the other side supports."""
        for supported in response.api_keys:
            self.versions[supported.api_key] = range(supported.min_version, supported.max_version + 1)

    def version_of(self, request: Request, first_unused: int = NEVER) -> int:
        """The newest version of a request below `first_unused` that both sides support."""
        supported = self.versions.get(request.api_key, range(0))
        known = request.versions
        version = min(supported.stop, known.stop, first_unused) - 1
        if version < max(supported.start, known.start):
            raise NoCommonVersion(type(request).__name__.removesuffix("Request"))
        return version

    def _take_correlation_id(self) -> int:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        return correlation_id


def _is_unsupported_version(frame: memoryview) -> bool:
    return bytes(frame[4:6]) == _INT16.pack(ErrorCode.UNSUPPORTED_VERSION.code)
