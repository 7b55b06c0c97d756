"""Distinguished names as text, exactly as Java writes them in the form of RFC 2253.

Kafka's ACLs and mapping rules contain this text, so that every character matters: the most specific part
comes first, nothing is put between parts but a comma, nine types have names, the values of all others
are written as their encoding.

    CN=broker-1,OU=Streams,O=Example\\, Inc.,C=DE
    1.2.840.113549.1.9.1=#1613726f6f74406578616d706c652e6f7267,CN=root
"""

from runnel.security.der import BadEncoding, elements, object_id_text, read_element
from runnel.security.x509 import BadCertificate

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}

_UTF8, _PRINTABLE, _T61, _IA5, _GENERAL, _BMP = 0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E
_STRINGS = frozenset({_UTF8, _PRINTABLE, _T61, _IA5, _GENERAL, _BMP})
_ESCAPED = frozenset(',=+<>#;"\\')
_BLANKS = " \r"


def rfc2253(name: bytes) -> str:
    """The text of a distinguished name in DER. Raises BadCertificate."""
    try:
        sequence, _ = read_element(name)
        parts = ["+".join(map(_pair, _pairs(part.content))) for part in elements(sequence.content)]
    except (BadEncoding, ValueError) as error:
        raise BadCertificate(f"a distinguished name cannot be read: {error}") from error
    return ",".join(reversed(parts))


def _pairs(content: bytes) -> list[bytes]:
    return [pair.content for pair in elements(content)]


def _pair(content: bytes) -> str:
    kind, value = elements(content)
    identifier = object_id_text(kind.content)
    keyword = _KEYWORDS.get(identifier)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or identifier}=#{value.encoded.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    escaped = "".join(
        f"\\{character}" if character in _ESCAPED else "\\00" if character == "\0" else character
        for character in text
    )
    bare = escaped.strip(_BLANKS)
    if bare == escaped:
        return escaped
    lead = len(escaped) - len(escaped.lstrip(_BLANKS))
    before, after = escaped[:lead], escaped[lead + len(bare) :]
    return "".join(f"\\{blank}" for blank in before) + bare + "".join(f"\\{blank}" for blank in after)
