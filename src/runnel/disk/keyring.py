"""The master keys of a node, and the keys of segments that are wrapped by them.

    master key ──► key of a segment, in a file beside it ──► batches

Each segment has a random key. It is stored encrypted with a master key, which the node gets at its start and
keeps in memory. The first master key encrypts; the others are for key files from before a rotation.

`encryption-masters` in the data directory lists the ids of the master keys that key files may need. An id is
durable there before the first key file that needs it: so a start without one of them is refused without a
look at every partition.
"""

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from threading import Lock

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from runnel.batch.errors import CorruptBatch
from runnel.disk.atomic import replace_file
from runnel.disk.batch_cipher import BatchCipher
from runnel.log.encryption import (
    KEY_BYTES,
    MARK,
    NONCE_BYTES,
    DamagedKey,
    WrappedKey,
    decode_key,
    decode_masters,
    encode_key,
    encode_masters,
)
from runnel.log.names import CLEANED, KEY, MASTERS, offset_name
from runnel.model.ids import TopicPartition
from runnel.ports.disk import BadDirectory
from runnel.ports.files import Files

_ID_BYTES = 8


class MasterKey:
    """A key that encrypts the keys of segments. Its id says nothing about it."""

    __slots__ = ("_aead", "id")

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a master key has {KEY_BYTES} bytes, not {len(key)}")
        self._aead = AESGCM(key)
        self.id = sha256(b"runnel master key id\0" + key).digest()[:_ID_BYTES].hex()

    def wrap(self, key: bytes, context: bytes, *, has_marks: bool = True) -> WrappedKey:
        nonce = os.urandom(NONCE_BYTES)
        return WrappedKey(self.id, nonce + self._aead.encrypt(nonce, key, context), has_marks)

    def unwrap(self, wrapped: WrappedKey, context: bytes) -> bytes:
        """Raises CorruptBatch if the key was changed, or is that of another segment."""
        try:
            return self._aead.decrypt(wrapped.data[:NONCE_BYTES], wrapped.data[NONCE_BYTES:], context)
        except (InvalidTag, ValueError):
            raise CorruptBatch("the key of the segment does not match its authentication tag") from None


class Keyring:
    """The master keys of a data directory; the first one encrypts."""

    def __init__(self, keys: Sequence[bytes], files: Files, folder: str) -> None:
        self._files, self._folder = files, folder
        self._lock = Lock()
        self._listed: set[str] = set()
        """The ids in the file."""
        self._in_use: Counter[str] = Counter()
        """The ids of master keys with which key files are being written."""
        self._used: set[str] = set()
        """The ids of those with which key files were written since the search for needed ones began."""
        masters = [MasterKey(key) for key in keys]
        self._masters = {master.id: master for master in masters}
        self.current = masters[0]

    def change(self, keys: Sequence[bytes]) -> bool:
        """Use these master keys; True if that is a change. Raises BadDirectory if one is missing."""
        masters = [MasterKey(key) for key in keys]
        by_id = {master.id: master for master in masters}
        with self._lock:
            self._check_listed(by_id)
            before = set(self._masters), self.current.id
            self._masters, self.current = by_id, masters[0]
        return before != (set(by_id), masters[0].id)

    def check(self) -> None:
        """At the start. Raises BadDirectory if a master key that may be needed is missing."""
        self._listed = listed_masters(self._files, self._folder)
        self._check_listed(self._masters)

    def _check_listed(self, given: Mapping[str, MasterKey]) -> None:
        missing = self._listed - given.keys()
        if missing:
            raise BadDirectory(
                f"segments in {self._folder} are encrypted with master key {', '.join(sorted(missing))}, "
                f"which is not given; given are {', '.join(given)}"
            )

    def keys_of(self, partition: TopicPartition, topic_id: bytes) -> "SegmentKeys":
        """The keys of the segments of one log."""
        return SegmentKeys(self, partition, topic_id)

    @property
    def listed(self) -> set[str]:
        """The ids of the master keys that key files may need."""
        return set(self._listed)

    @contextmanager
    def wrapping(self) -> Iterator[MasterKey]:
        """The current master key, while a key file is written; in any thread, as its id is stored first."""
        with self._lock:
            master = self.current
            if master.id not in self._listed:
                self._store(self._listed | {master.id})
            self._in_use[master.id] += 1
            self._used.add(master.id)
        try:
            yield master
        finally:
            with self._lock:
                self._in_use[master.id] -= 1

    def unwrap(self, wrapped: WrappedKey, context: bytes) -> bytes:
        master = self._masters.get(wrapped.master_id)
        if master is None:
            raise no_key(f"the segment is encrypted with master key {wrapped.master_id}, which is not given")
        return master.unwrap(wrapped, context)

    def forget_unneeded(self, find_needed: Callable[[], set[str]]) -> None:
        """List only the master keys that key files need, which this function finds; in any thread."""
        with self._lock:
            # A key file that is written during the search is not found; the master key may change meanwhile.
            self._used = {master_id for master_id, count in self._in_use.items() if count}
            self._used.add(self.current.id)
        needed = find_needed()
        with self._lock:
            kept = self._listed & (needed | self._used | {self.current.id})
            if kept != self._listed:
                self._store(kept)

    def _store(self, ids: set[str]) -> None:
        replace_file(self._files, self._folder, MASTERS, encode_masters(ids), sync=True)
        self._listed = ids


def listed_masters(files: Files, folder: str) -> set[str]:
    """The ids of the master keys that segments of a data directory need. Raises BadDirectory."""
    try:
        return decode_masters(files.read(f"{folder}/{MASTERS}"))
    except FileNotFoundError:
        return set()
    except DamagedKey as error:
        raise BadDirectory(f"{folder}/{MASTERS} is damaged: {error}") from error


def no_key(text: str) -> OSError:
    """The error of an operation that needs a key which this node does not have; no sign of damage."""
    return OSError(errno.ENOKEY, text)


class SegmentKeys:
    """The keys of the segments of one log."""

    __slots__ = ("_context", "_keyring")

    def __init__(self, keyring: Keyring, partition: TopicPartition, topic_id: bytes) -> None:
        self._keyring = keyring
        self._context = topic_id + partition.partition.to_bytes(4)

    def create(self, files: Files, folder: str, base_offset: int) -> BatchCipher:
        """A new key, durable on return."""
        key = os.urandom(KEY_BYTES)
        with self._keyring.wrapping() as master:
            data = encode_key(master.wrap(key, self._key_context(base_offset)))
            replace_file(files, folder, offset_name(base_offset, KEY), data, sync=True)
        return self._cipher(key)

    def create_cleaned(self, files: Files, folder: str, base_offset: int) -> BatchCipher:
        """A new key for a compacted segment; the file has its name until the segment is swapped in."""
        key = os.urandom(KEY_BYTES)
        with self._keyring.wrapping() as master:
            data = encode_key(master.wrap(key, self._key_context(base_offset)))
            files.write(f"{folder}/{offset_name(base_offset, KEY)}{CLEANED}", data, sync=True)
        return self._cipher(key)

    def load(self, files: Files, folder: str, base_offset: int) -> BatchCipher:
        """The key of a segment. CorruptBatch or FileNotFoundError if it is damaged or missing."""
        path = f"{folder}/{offset_name(base_offset, KEY)}"
        wrapped = _read(files, path)
        return self._cipher(self._unwrap(path, wrapped, base_offset), MARK if wrapped.has_marks else b"")

    def rewrap(self, files: Files, folder: str, base_offset: int) -> bytes | None:
        """The key file for the current master key; None if that is what it is already."""
        path = f"{folder}/{offset_name(base_offset, KEY)}"
        wrapped = _read(files, path)
        if wrapped.master_id == self._keyring.current.id:
            return None
        key = self._unwrap(path, wrapped, base_offset)
        with self._keyring.wrapping() as master:
            context = self._key_context(base_offset)
            return encode_key(master.wrap(key, context, has_marks=wrapped.has_marks))

    def _unwrap(self, path: str, wrapped: WrappedKey, base_offset: int) -> bytes:
        try:
            return self._keyring.unwrap(wrapped, self._key_context(base_offset))
        except CorruptBatch as error:
            raise CorruptBatch(f"{path}: {error}") from None

    def _cipher(self, key: bytes, mark: bytes = MARK) -> BatchCipher:
        return BatchCipher(key, b"runnel batch 1\0" + self._context, mark)

    def _key_context(self, base_offset: int) -> bytes:
        return b"runnel segment key 1\0" + self._context + base_offset.to_bytes(8)


def master_of(files: Files, path: str) -> str:
    """The id of the master key that a key file needs. Raises CorruptBatch and OSError."""
    return _read(files, path).master_id


def _read(files: Files, path: str) -> WrappedKey:
    try:
        return decode_key(files.read(path))
    except DamagedKey as error:
        raise CorruptBatch(f"{path} is damaged: {error}") from error
