"""Encrypted segments of earlier releases, whose batches have no marks: they are read and extended."""

from dataclasses import replace
from random import Random

import pytest

from runnel.disk.atomic import replace_file
from runnel.disk.batch_cipher import BatchCipher
from runnel.disk.key_rotation import rotate_stopped
from runnel.disk.keyring import Keyring, SegmentKeys
from runnel.log.encryption import decode_key, encode_key
from runnel.log.names import KEY, LOG, offset_name
from runnel.ports.files import Files
from tests.disk import compacted
from tests.disk.test_encryption import ENCRYPTED, MASTER, OTHER, encrypted_place
from tests.disk.world import append, batch, read_all


def create_unmarked(self: SegmentKeys, files: Files, folder: str, base_offset: int) -> BatchCipher:
    """A key file of version 1, as earlier releases wrote it."""
    key = bytes(32)
    with self._keyring.wrapping() as master:
        data = encode_key(master.wrap(key, self._key_context(base_offset), has_marks=False))
    replace_file(files, folder, offset_name(base_offset, KEY), data, sync=True)
    return self._cipher(key, b"")


@pytest.mark.parametrize("end", ["clean", "killed", "torn write", "new master key"])
def test_segments_without_marks_are_read_and_extended(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = encrypted_place()
    with monkeypatch.context() as patch:
        patch.setattr(SegmentKeys, "create", create_unmarked)
        directory, log = place.open_log(ENCRYPTED)
        for number in range(30):
            append(log, batch(b"%d" % number * 50))
    active, expected = log.segments.active, read_all(log)
    first_size = place.files.size_bytes(log.segments.path(log.segments.segments[0], LOG))
    assert len(log.segments.segments) > 2
    if end in ("clean", "new master key"):
        directory.close()
    elif end == "torn write":
        place.files.open(log.segments.path(active, LOG)).pwritev([expected[-1][:70]], active.size_bytes)
    for _ in range(3):
        directory, log = place.open_log(ENCRYPTED)
        assert not log.is_damaged
        assert read_all(log) == expected
        append(log, batch(bytes(100)))
        expected = read_all(log)
        assert [each[:8] for each in expected] == [number.to_bytes(8) for number in range(len(expected))]
        if end == "new master key":
            directory.close()
            keyring = Keyring([OTHER, MASTER], place.files, place.path)
            keyring.check()
            rotate_stopped(place.files, place.path, keyring, pytest.fail)
            place.master_keys = [OTHER]
    assert log.segments.active.base_offset >= active.base_offset
    assert place.files.size_bytes(log.segments.path(log.segments.segments[0], LOG)) == first_size


@pytest.mark.parametrize("seed", range(3))
def test_segments_without_marks_are_compacted_into_marked_ones(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, config = compacted.new_files(), replace(compacted.CONFIG, encryption_enable=True)
    with monkeypatch.context() as patch:
        patch.setattr(SegmentKeys, "create", create_unmarked)
        compacted.fill(compacted.open_log(files, config, [MASTER]), Random(seed))
    log = compacted.open_log(files, config, [MASTER])
    compacted.fill(log, Random(seed + 100))
    table = compacted.table(log)
    compacted.compact(log)
    assert compacted.table(log) == table
    assert compacted.leftovers(files) == []
    reopened = compacted.open_log(files, config, [MASTER])
    assert not reopened.is_damaged
    assert compacted.records(reopened) == compacted.records(log)
    first = reopened.segments.path(reopened.segments.segments[0], KEY)
    assert decode_key(files.read(first)).has_marks
