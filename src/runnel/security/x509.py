"""The parts of a certificate that Runnel reads; its signature is verified by OpenSSL."""

from calendar import timegm
from typing import NamedTuple

from runnel.security.der import (
    OBJECT_ID,
    OCTET_STRING,
    SEQUENCE,
    BadEncoding,
    Element,
    elements,
    read_element,
)

_VERSION, _EXTENSIONS = 0xA0, 0xA3
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_ALTERNATIVE_NAMES = bytes.fromhex("551d11")


class BadCertificate(ValueError):
    """The bytes are not a certificate."""


class Certificate(NamedTuple):
    """A certificate."""

    encoded: bytes
    issuer: bytes
    """A distinguished name, in DER."""
    subject: bytes
    not_before_s: int
    not_after_s: int
    alternative_names: frozenset[bytes]
    """The subject's alternative names, each in DER."""


def read_certificate(data: bytes) -> Certificate:
    """Raises BadCertificate."""
    try:
        whole, _ = read_element(data)
        body = next(elements(whole.content))
        fields = list(elements(body.content))
        if fields[0].tag == _VERSION:
            del fields[0]
        _serial, _algorithm, issuer, validity, subject, _key, *rest = fields
        not_before, not_after = map(_seconds, elements(validity.content))
        extensions = next((field.content for field in rest if field.tag == _EXTENSIONS), b"")
        names = frozenset(_alternative_names(extensions))
    except (BadEncoding, ValueError, IndexError, StopIteration) as error:
        raise BadCertificate(f"the certificate cannot be read: {error}") from error
    return Certificate(whole.encoded, issuer.encoded, subject.encoded, not_before, not_after, names)


def _seconds(time: Element) -> int:
    """A time since 1970."""
    text = time.content.decode("ascii")
    if time.tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    elif time.tag != _GENERALIZED_TIME:
        raise BadEncoding("a time has an unknown type")
    if len(text) != len("YYYYMMDDhhmmssZ") or not text[:-1].isdecimal() or text[-1] != "Z":
        raise BadEncoding("a time is malformed")
    year, *others = (int(text[:4]), *(int(text[start : start + 2]) for start in range(4, 14, 2)))
    return timegm((year, *others))


def _alternative_names(extensions: bytes) -> list[bytes]:
    if not extensions:
        return []
    (sequence,) = elements(extensions)
    for extension in elements(sequence.content):
        identifier, *_, value = elements(extension.content)
        if (identifier.tag, identifier.content) == (OBJECT_ID, _ALTERNATIVE_NAMES):
            if value.tag != OCTET_STRING:
                raise BadEncoding("an extension is malformed")
            names, _ = read_element(value.content)
            if names.tag != SEQUENCE:
                raise BadEncoding("an extension is malformed")
            return [name.encoded for name in elements(names.content)]
    return []
