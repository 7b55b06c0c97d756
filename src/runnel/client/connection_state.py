"""The client side of one connection, without I/O: encodes requests and decodes responses.

    send(request)  -> (correlation id, buffers to send)
    received(data) -> [(correlation id, response), …]

Versions are negotiated once: the first request is ApiVersions, and each later one is sent in the newest
version that both sides support.
"""

from collections.abc import Generator, Iterator
from struct import Struct as Layout

from runnel.client.errors import InvalidResponse, TlsFailed, UnsupportedVersion
from runnel.messages.api_versions import ApiVersionsResponse
from runnel.messages.exchange import Exchange, NoCommonVersion
from runnel.wire import Buffer, MalformedMessage, Request, Response
from runnel.wire.frame import NEVER

RESPONSE_BYTES_MAX = 512 * 1024 * 1024
"""The maximum size of a response; a larger length indicates another protocol."""

_INT32 = Layout(">i")
_TLS_ALERT = 0x1503
"""How a TLS server's answer to clear text begins; no response is of this size, some 350 MB."""


class FrameDecoder:
    """Splits a byte stream into frames; a frame that arrives in pieces is copied once."""

    def __init__(self) -> None:
        self._prefix = b""
        self._frame = bytearray()
        self._filled = 0

    def feed(self, data: bytes) -> Iterator[memoryview]:
        """The frames that `data` completes."""
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
            length = frame_length(prefix)
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


def frame_length(prefix: bytes | bytearray) -> int:
    """The length of a response; InvalidResponse or TlsFailed if it cannot be one."""
    (length,) = _INT32.unpack(prefix)
    if length >> 16 == _TLS_ALERT:
        raise TlsFailed(
            "the listener uses TLS: set security.protocol to SSL or SASL_SSL, or use the port of one without"
        )
    if not 4 <= length <= RESPONSE_BYTES_MAX:
        raise InvalidResponse(f"invalid response size {length}: is this a Kafka listener?")
    return int(length)


class ConnectionState:
    """The in-flight requests of one connection, and the negotiated versions."""

    def __init__(self, client_id: str) -> None:
        self._exchange = Exchange(client_id)
        self._frames = FrameDecoder()
        self.version_limits = dict(_VERSION_LIMITS)
        """API key → the first version that is not used."""
        self.features: dict[str, int] = {}
        """The finalized feature levels of the cluster."""

    @property
    def versions(self) -> dict[int, range]:
        """API key → the versions that the broker supports."""
        return self._exchange.versions

    def send(self, request: Request) -> tuple[int, list[Buffer]]:
        """Encode a request; returns its correlation id and the bytes."""
        return self._exchange.encode(request, self.version_of(request))

    def send_oneway(self, request: Request) -> list[Buffer]:
        """Encode a request without a response (produce with acks=0)."""
        return self._exchange.encode_oneway(request, self.version_of(request))

    def received(self, data: bytes) -> Iterator[tuple[int, Response]]:
        """Decode the responses that `data` completes."""
        for frame in self._frames.feed(data):
            try:
                yield self._exchange.decode(frame)
            except MalformedMessage as error:
                raise InvalidResponse(str(error)) from error

    def set_api_versions(self, response: ApiVersionsResponse) -> None:
        """Set the versions and features of the broker."""
        self._exchange.set_api_versions(response)
        self.features = {feature.name: feature.max_version_level for feature in response.finalized_features}

    def version_of(self, request: Request) -> int:
        """The newest version of this request that both sides support."""
        try:
            return self._exchange.version_of(request, self._version_limit(request.api_key))
        except NoCommonVersion as error:
            raise UnsupportedVersion(
                f"the broker and this client support no common version of {error}"
            ) from None

    def _version_limit(self, api_key: int) -> int:
        """The first version of an API that must not be used."""
        if self.features.get("transaction.version", 0) < 2 and api_key in _TRANSACTION_VERSION_2:
            return _TRANSACTION_VERSION_2[api_key]
        return self.version_limits.get(api_key, NEVER)


_VERSION_LIMITS = {0: 13, 1: 13, 8: 10, 9: 10, 24: 4}
"""The first versions of Produce, Fetch, OffsetCommit and OffsetFetch that use topic ids only, and of
AddPartitionsToTxn that is for brokers only. Not used unless a caller raises the limit."""
_TRANSACTION_VERSION_2 = {0: 12, 26: 5, 28: 5}
"""The first versions of Produce, EndTxn and TxnOffsetCommit of transaction V2 (KIP-890). Only for clusters
with that feature level."""
