"""Decoding and encoding of messages. Codecs are compiled on the first use of a version."""

from struct import error as LayoutError
from typing import Any, TypeVar

from runnel.wire.compile_decode import decoder_source
from runnel.wire.compile_encode import encoder_source
from runnel.wire.primitives import MalformedMessage, TooManyElements, UnknownVersion
from runnel.wire.struct import Message

AnyMessage = TypeVar("AnyMessage", bound=Message)
Buffer = bytes | bytearray | memoryview


def decode(message: type[AnyMessage], version: int, buffer: Buffer, position: int = 0) -> AnyMessage:
    """Decode the message from `position` to the end of `buffer`. Raises MalformedMessage."""
    # Inlined decode_prefix: this is the hot path of every request.
    decoder = message._decoders.get(version)
    if decoder is None:
        decoder = _compile(message, version, "decode")
    if type(buffer) is not memoryview:
        buffer = memoryview(buffer)
    try:
        result, end = decoder(buffer, position)
    except (LayoutError, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"{message.__name__} v{version}: {error}") from error
    if end != len(buffer):
        raise MalformedMessage(f"{message.__name__} v{version} ends at {end}, the input at {len(buffer)}")
    return result  # type: ignore[no-any-return]


def decode_prefix(
    message: type[AnyMessage], version: int, buffer: Buffer, position: int = 0
) -> tuple[AnyMessage, int]:
    """Decode a message that may be followed by other bytes; returns it and its end."""
    decoder = message._decoders.get(version)
    if decoder is None:
        decoder = _compile(message, version, "decode")
    try:
        result: tuple[AnyMessage, int] = decoder(memoryview(buffer), position)
    except (LayoutError, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"{message.__name__} v{version}: {error}") from error
    if result[1] > len(buffer):
        raise MalformedMessage(f"{message.__name__} v{version} is truncated")
    return result


def decode_request(
    message: type[AnyMessage], version: int, view: memoryview, position: int, elements_max: int
) -> AnyMessage:
    """Decode a request, ignoring trailing bytes as Kafka does. Raises MalformedMessage, TooManyElements."""
    decoder = message._decoders.get(version)
    if decoder is None:
        decoder = _compile(message, version, "decode")
    try:
        request, end = decoder(view, position, elements_max)
    except TooManyElements as error:
        raise TooManyElements(f"more than {elements_max} elements, at {error}") from None
    except (LayoutError, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"{message.__name__} v{version}: {error}") from error
    if end > len(view):
        raise MalformedMessage(f"{message.__name__} v{version} is truncated")
    return request  # type: ignore[no-any-return]


def encode(message: Message, version: int) -> list[Any]:
    """Encode a message as a list of buffers; large record data is not copied."""
    encoder = message._encoders.get(version)
    if encoder is None:
        encoder = _compile(type(message), version, "encode")
    buffers: list[Any] = encoder(message)
    return buffers


def encoded(message: Message, version: int) -> bytes:
    """Encode a message as one bytes object."""
    return b"".join(encode(message, version))


def _compile(message: type[Message], version: int, verb: str) -> Any:
    if version not in message.versions:
        raise UnknownVersion(f"{message.__name__} has no version {version}, only {_shown(message.versions)}")
    source = (decoder_source if verb == "decode" else encoder_source)(message, version)
    function = source.compile(verb, f"{verb} {message.__name__} v{version}")
    (message._decoders if verb == "decode" else message._encoders)[version] = function
    return function


def _shown(versions: range) -> str:
    return f"{versions.start}-{versions.stop - 1}"
