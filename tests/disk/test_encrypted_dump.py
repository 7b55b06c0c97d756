"""`runnel log dump` of an encrypted segment, with and without its key."""

from runnel.disk.dump import BatchRow, ProblemRow, RecordRow, dump
from runnel.disk.keyring import Keyring
from runnel.model.log_config import LogConfig
from tests.disk.test_encryption import FOLDER, MASTER, OTHER, encrypted_place, flip
from tests.disk.world import append, batch


def test_a_dump_with_and_without_the_key() -> None:
    place = encrypted_place()
    _, log = place.open_log(LogConfig(encryption_enable=True))
    append(log, batch(b"value"))
    append(log, batch(b"another"))
    rows = list(dump(place.files, FOLDER, with_records=True))
    batches = [row for row in rows if isinstance(row, BatchRow)]
    assert [(row.is_encrypted, row.crc_is_valid) for row in batches] == [(True, None)] * 2
    assert not any(isinstance(row, RecordRow | ProblemRow) for row in rows)
    keyring = Keyring([MASTER], place.files, "/data")
    rows = list(dump(place.files, FOLDER, with_records=True, keyring=keyring))
    assert [row.crc_is_valid for row in rows if isinstance(row, BatchRow)] == [True, True]
    assert [row.value for row in rows if isinstance(row, RecordRow)] == [b"value", b"another"]
    other = Keyring([OTHER], place.files, "/data")
    rows = list(dump(place.files, FOLDER, keyring=other))
    assert ["which is not given" in row.text for row in rows if isinstance(row, ProblemRow)] == [True]
    flip(place, f"{FOLDER}/{0:020d}.log", 80)
    rows = list(dump(place.files, FOLDER, with_records=True, keyring=keyring))
    assert [row.crc_is_valid for row in rows if isinstance(row, BatchRow)] == [False, True]
    assert ["authentication tag" in row.text for row in rows if isinstance(row, ProblemRow)] == [True]
