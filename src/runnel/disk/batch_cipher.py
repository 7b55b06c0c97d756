"""AES-256-GCM of the batches of one segment, with a key of its own.

Nonces are random, never derived from offsets: after a truncation an offset is written a second time. A
segment holds far fewer than 2³² batches, up to which random nonces are safe. The tag also covers the header,
the topic id and the partition, so that a stored batch is valid at its own offset of its own partition only.

The library holds the GIL: a mebibyte keeps other threads waiting for a millisecond or two, so callers take
one batch at a time. Calls from several threads do not disturb each other.
"""

import os
from collections.abc import Iterable, Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from runnel.batch.errors import CorruptBatch
from runnel.batch.header import HEADER_BYTES, read_header
from runnel.log.encryption import (
    MARK,
    NONCE_BYTES,
    TAG_BYTES,
    authenticated_part,
    with_length,
)
from runnel.ports.files import Bytes


class BatchCipher:
    """Encrypts and decrypts whole batches."""

    __slots__ = ("_aead", "_context", "_mark", "_nonce_start", "_records_start", "overhead_bytes")

    def __init__(self, key: bytes, context: bytes, mark: bytes = MARK) -> None:
        self._aead = AESGCM(key)
        self._context = context
        """What batches are bound to beside their headers."""
        self._mark = mark
        """What each stored batch has behind its header."""
        self._nonce_start = HEADER_BYTES + len(mark)
        self._records_start = self._nonce_start + NONCE_BYTES
        self.overhead_bytes = len(mark) + NONCE_BYTES + TAG_BYTES
        """How much larger than the clear batch the stored one is."""

    def encrypt(self, batch: Bytes) -> tuple[bytes, bytes]:
        """The stored batch, in two parts."""
        view = memoryview(batch)
        header = bytes(view[:HEADER_BYTES])
        nonce = os.urandom(NONCE_BYTES)
        body = self._aead.encrypt(nonce, view[HEADER_BYTES:], self._context + authenticated_part(header))
        return with_length(header, len(view) + self.overhead_bytes) + self._mark + nonce, body

    def encrypt_all(self, batches: Iterable[Bytes]) -> list[Bytes]:
        """The buffers of the stored batches, to be written in sequence."""
        return [part for batch in batches for part in self.encrypt(batch)]

    def decrypt(self, stored: Bytes) -> bytes:
        """The clear batch; CorruptBatch if it was changed, or belongs elsewhere."""
        view = memoryview(stored)
        header = bytes(view[:HEADER_BYTES])
        size_bytes = len(view) - self.overhead_bytes
        if size_bytes < HEADER_BYTES:
            raise CorruptBatch(f"{len(view)} bytes are too short for an encrypted batch")
        if view[HEADER_BYTES : self._nonce_start] != self._mark:
            raise _changed(header)
        associated = self._context + authenticated_part(header)
        nonce, body = view[self._nonce_start : self._records_start], view[self._records_start :]
        try:
            records = self._aead.decrypt(nonce, body, associated)
        except InvalidTag:
            raise _changed(header) from None
        return with_length(header, size_bytes) + records

    def decrypt_all(self, stored: Bytes) -> bytes:
        """The clear batches of a run of whole ones; for small runs."""
        return b"".join(self.decrypt(batch) for batch in _batches(memoryview(stored)))

    def decrypt_large(self, stored: Bytes) -> memoryview:
        """The same without a copy, which only pays for large runs."""
        batches = list(_batches(memoryview(stored)))
        clear = memoryview(bytearray(len(stored)))
        start = 0
        for batch in batches:
            end = start + len(batch) - self.overhead_bytes
            if end - start < HEADER_BYTES:
                raise CorruptBatch(f"{len(batch)} bytes are too short for an encrypted batch")
            self._decrypt_into(batch, clear[start:end])
            start = end
        return clear[:start]

    def _decrypt_into(self, stored: memoryview, clear: memoryview) -> None:
        header = bytes(stored[:HEADER_BYTES])
        if stored[HEADER_BYTES : self._nonce_start] != self._mark:
            raise _changed(header)
        nonce, body = stored[self._nonce_start : self._records_start], stored[self._records_start :]
        associated = self._context + authenticated_part(header)
        clear[:HEADER_BYTES] = with_length(header, len(clear))
        try:
            self._aead.decrypt_into(nonce, body, associated, clear[HEADER_BYTES:])
        except InvalidTag:
            raise _changed(header) from None


def _batches(stored: memoryview) -> Iterator[memoryview]:
    """Each batch of a run of whole ones."""
    position = 0
    while position < len(stored):
        end = position + read_header(stored, position).size_bytes
        yield stored[position:end]
        position = end


def _changed(header: bytes) -> CorruptBatch:
    offset = int.from_bytes(header[:8])
    return CorruptBatch(f"the batch at offset {offset} does not match its authentication tag")
