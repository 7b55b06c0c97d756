"""Encryption at rest: the layout of encrypted batches and of key files.

An encrypted segment has a key file beside it, and all its batches are encrypted:

    header 61 · mark 4 · nonce 12 · records, encrypted · tag 16

The header is that of the clear batch but for its length, which is that of the stored batch: whatever walks a
segment by its headers (indexes, recovery, retention, truncation) treats both kinds of segment alike, and
positions and sizes are always those of the file. The checksum is that of the clear batch. The mark shows that
a batch is encrypted, if the key file beside the segment is missing. Segments with a key file of version 1
have no marks, also in what is appended to them.
"""

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass

from runnel.batch.header import HEADER_BYTES, LENGTH_PREFIX_BYTES, Buffer

MARK = b"\xff\xffE1"
"""Records do not begin like this: their first byte would be part of a length of gigabytes."""
NONCE_BYTES = 12
TAG_BYTES = 16
OVERHEAD_BYTES = len(MARK) + NONCE_BYTES + TAG_BYTES
"""How much larger than the clear batch the stored one is, in a new segment."""
NONCE_START = HEADER_BYTES + len(MARK)
RECORDS_START = NONCE_START + NONCE_BYTES
KEY_BYTES = 32
"""AES-256."""

_LENGTH_START = 8
_UNMARKED_VERSION, _MARKED_VERSION = 1, 2
_MASTERS_VERSION = 1


class DamagedKey(Exception):
    """A key file is incomplete, or of an unknown version."""


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """The key of a segment, encrypted with a master key."""

    master_id: str
    data: bytes
    """Nonce, key and tag."""
    has_marks: bool = True
    """Are the batches of the segment marked?"""


def with_length(header: bytes, size_bytes: int) -> bytes:
    """The header of a batch of this size."""
    length = (size_bytes - LENGTH_PREFIX_BYTES).to_bytes(4)
    return header[:_LENGTH_START] + length + header[LENGTH_PREFIX_BYTES:]


def authenticated_part(header: bytes) -> bytes:
    """What the tag covers of a header: all but the length, which the size of the records determines."""
    return header[:_LENGTH_START] + header[LENGTH_PREFIX_BYTES:]


def is_marked(stored: Buffer) -> bool:
    """Whether a stored batch looks encrypted. A clear one may, by intention: then its checksum is right."""
    return bytes(stored[HEADER_BYTES:NONCE_START]) == MARK


def encode_key(key: WrappedKey) -> bytes:
    """A key file."""
    document = {
        "version": _MARKED_VERSION if key.has_marks else _UNMARKED_VERSION,
        "master": key.master_id,
        "key": b64encode(key.data).decode("ascii"),
    }
    return json.dumps(document).encode() + b"\n"


def decode_key(data: bytes) -> WrappedKey:
    """The contents of a key file. Raises DamagedKey."""
    try:
        document = json.loads(data)
        version = document["version"]
        if version not in (_UNMARKED_VERSION, _MARKED_VERSION):
            raise DamagedKey(f"unknown version {version}")
        data = b64decode(document["key"], validate=True)
        return WrappedKey(str(document["master"]), data, version == _MARKED_VERSION)
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedKey(f"it is not a key file: {error}") from error


def encode_masters(ids: set[str]) -> bytes:
    """The file with the ids of the master keys that key files of a data directory may need."""
    return json.dumps({"version": _MASTERS_VERSION, "masters": sorted(ids)}).encode() + b"\n"


def decode_masters(data: bytes) -> set[str]:
    """The ids of master keys. Raises DamagedKey."""
    try:
        document = json.loads(data)
        if document["version"] != _MASTERS_VERSION:
            raise DamagedKey(f"unknown version {document['version']}")
        return {str(each) for each in document["masters"]}
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedKey(f"it is not a list of master keys: {error}") from error
