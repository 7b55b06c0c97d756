"""A few rounds of what `make crash` does at length: nothing acknowledged is lost."""

import pytest

from tools.broker_process import BrokerProcess
from tools.crash import volumes
from tools.crash.disk_full import disk_full
from tools.crash.powercut import power_cuts
from tools.crash.rounds import kill, run_rounds

MISSING = volumes.missing()
needs_volumes = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.mark.slow
def test_kill_nine_under_load(tmp_path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    try:
        outcome = run_rounds(broker, rounds=3, crash=kill, seed=7)
    finally:
        broker.kill()
    assert outcome.violations == [], broker.log_tail()
    assert outcome.acknowledged > 100


@pytest.mark.long
@pytest.mark.slow
def test_kill_nine_with_encrypted_topics(tmp_path) -> None:
    key_file = tmp_path / "master.key"
    key_file.touch(mode=0o600)
    key_file.write_text(bytes(range(32)).hex())
    encryption = {"log.encryption.enable": "true", "encryption.master.key.file": str(key_file)}
    broker = BrokerProcess(tmp_path / "data", encryption)
    try:
        outcome = run_rounds(broker, rounds=2, crash=kill, seed=11)
    finally:
        broker.kill()
    assert outcome.violations == [], broker.log_tail()
    assert outcome.acknowledged > 100
    folders = [path for path in (tmp_path / "data").iterdir() if path.name.startswith("kept")]
    assert folders
    assert all(list(path.glob("*.key")) for path in folders)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.root
@needs_volumes
def test_power_cut_under_load(tmp_path) -> None:
    outcome = power_cuts(tmp_path / "cut", rounds=2, seed=7)
    assert outcome.violations == []
    assert outcome.acknowledged > 100


@pytest.mark.slow
@pytest.mark.root
@needs_volumes
def test_full_disk(tmp_path) -> None:
    outcome = disk_full(tmp_path / "full", volume_bytes=16 * 1024 * 1024)
    assert outcome.violations == []
