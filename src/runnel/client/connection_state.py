"""The client's side of one connection without the socket: what to send, and what the bytes received answer.

    ask(request, Answer) -> (correlation id, buffers to send)
    received(data)       -> [(correlation id, answer), …]

Versions are agreed once: the first question on a connection is ApiVersions, each later one is asked in the
newest version that both sides know.
"""

from collections.abc import Generator, Iterator
from struct import Struct as Layout

from runnel.client.errors import InvalidResponse, UnsupportedVersion
from runnel.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from runnel.model.errors import ErrorCode
from runnel.wire import Buffer, MalformedMessage, Request, Response, decode
from runnel.wire.frame import has_flexible_header, read_response_header, request_frame

RESPONSE_BYTES_MAX = 512 * 1024 * 1024
"""No answer that we ask for comes near; a larger length is another protocol's greeting."""

_INT16 = Layout(">h")
_INT32 = Layout(">i")


class FrameDecoder:
    """Cuts a stream of bytes into frames; a frame that arrives in pieces is copied once."""

    def __init__(self) -> None:
        self._prefix = b""
        self._frame = bytearray()
        self._filled = 0

    def feed(self, data: bytes) -> Iterator[memoryview]:
        """Every frame that `data` completes, in order."""
        view = memoryview(data)
        while view:
            if self._frame:
                view = yield from self._fill(view)
                continue
            if self._prefix or len(view) < 4:
                missing = 4 - len(self._prefix)
                self._prefix += bytes(view[:missing])
                view = view[missing:]
                if len(self._prefix) < 4:
                    return
                prefix, self._prefix = self._prefix, b""
            else:
                prefix, view = bytes(view[:4]), view[4:]
            length = _frame_length(prefix)
            if len(view) >= length:
                yield view[:length]
                view = view[length:]
            else:
                self._frame, self._filled = bytearray(length), 0

    def _fill(self, view: memoryview) -> Generator[memoryview, None, memoryview]:
        taken = min(len(view), len(self._frame) - self._filled)
        self._frame[self._filled : self._filled + taken] = view[:taken]
        self._filled += taken
        if self._filled == len(self._frame):
            frame, self._frame = self._frame, bytearray()
            yield memoryview(frame)
        return view[taken:]


def _frame_length(prefix: bytes) -> int:
    (length,) = _INT32.unpack(prefix)
    if not 4 <= length <= RESPONSE_BYTES_MAX:
        raise InvalidResponse(f"an answer of {length} bytes is impossible: is this really a Kafka port?")
    return int(length)


class ConnectionState:
    """What was asked on one connection and not yet answered, and the versions both sides know."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._frames = FrameDecoder()
        self._expected: dict[int, tuple[type[Response], int]] = {}
        self._next_correlation_id = 0
        self.version_limits = dict(_VERSION_LIMITS)
        """The first version of an API that is not asked, by its key."""
        self.versions: dict[int, range] = {ApiVersionsRequest.api_key: ApiVersionsRequest.versions}
        self.features: dict[str, int] = {}
        """The level of each feature that the whole cluster has agreed on."""

    def send(self, request: Request, response_type: type[Response]) -> tuple[int, list[Buffer]]:
        """The bytes of a question, and the number that its answer will carry."""
        version = self.version_of(request)
        correlation_id = self._take_correlation_id()
        self._expected[correlation_id] = (response_type, version)
        return correlation_id, request_frame(request, version, correlation_id, self._client_id)

    def send_oneway(self, request: Request) -> list[Buffer]:
        """The bytes of a request that gets no answer (produce with acks=0)."""
        version = self.version_of(request)
        return request_frame(request, version, self._take_correlation_id(), self._client_id)

    def received(self, data: bytes) -> Iterator[tuple[int, Response]]:
        """The answers that `data` completes."""
        for frame in self._frames.feed(data):
            (correlation_id,) = _INT32.unpack_from(frame)
            if correlation_id not in self._expected:
                raise InvalidResponse(f"the broker answered {correlation_id}, which was not asked")
            response_type, version = self._expected.pop(correlation_id)
            yield correlation_id, _decode(response_type, version, frame)

    def set_api_versions(self, response: ApiVersionsResponse) -> None:
        """Take over which versions the broker knows."""
        for api in response.api_keys:
            self.versions[api.api_key] = range(api.min_version, api.max_version + 1)
        self.features = {feature.name: feature.max_version_level for feature in response.finalized_features}

    def version_of(self, request: Request) -> int:
        """The newest version of this request that both sides know."""
        theirs = self.versions.get(request.api_key, range(0))
        ours = request.versions
        version = min(theirs.stop, ours.stop, self._version_limit(request.api_key)) - 1
        if version < max(theirs.start, ours.start):
            name = type(request).__name__.removesuffix("Request")
            raise UnsupportedVersion(
                f"the broker does not support {name} in a version that this client knows"
            )
        return version

    def _version_limit(self, api_key: int) -> int:
        """The first version of an API that we must not use."""
        if self.features.get("transaction.version", 0) < 2 and api_key in _TRANSACTION_VERSION_2:
            return _TRANSACTION_VERSION_2[api_key]
        return self.version_limits.get(api_key, 2**15)

    def _take_correlation_id(self) -> int:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        return correlation_id


_VERSION_LIMITS = {0: 13, 1: 13, 8: 10, 9: 10, 24: 4}
"""First version of Produce, Fetch, OffsetCommit, OffsetFetch that names topics by id only, and of
AddPartitionsToTxn that is spoken between brokers; we stay below, unless a caller has the ids."""
_TRANSACTION_VERSION_2 = {0: 12, 26: 5, 28: 5}
"""First version of Produce, EndTxn, TxnOffsetCommit by which a client says that it counts an epoch for each
transaction (KIP-890), which only a cluster with that feature may hear."""


def _decode(response_type: type[Response], version: int, frame: memoryview) -> Response:
    try:
        _, position = read_response_header(frame, has_flexible_header(response_type, version))
        if response_type is ApiVersionsResponse and _is_unsupported_version(frame):
            # A broker that knows less than our version answers in version 0, with all it knows (KIP-511).
            version = 0
        return decode(response_type, version, frame, position)
    except MalformedMessage as error:
        raise InvalidResponse(f"the broker's {response_type.__name__} cannot be read: {error}") from error


def _is_unsupported_version(frame: memoryview) -> bool:
    return bytes(frame[4:6]) == _INT16.pack(ErrorCode.UNSUPPORTED_VERSION.code)
