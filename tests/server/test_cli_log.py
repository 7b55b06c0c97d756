"""`runnel log dump`: what is on disk, and what is wrong with it."""

import json
from pathlib import Path

import pytest

from runnel.testing import Broker


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A partition's folder with three records in two batches."""
    with Broker(data_dir=tmp_path / "data") as broker, broker.client() as client:
        client.create_topic("orders")
        client.send("orders", b"tea", key=b"anna", headers=[("h", b"1")])
        client.send_all("orders", [(None, b"coffee"), (b"\xff", b"\xfe")])
    return tmp_path / "data" / "orders-0"


def test_batches_and_records(run, folder):
    out = run.ok("log", "dump", str(folder)).out
    assert "from offset 0" in out and "offsets 0-0" in out and "crc ok" in out and "tea" not in out
    out = run.ok("log", "dump", str(folder), "--records").out
    assert "anna  tea  [h=1]" in out and "-  coffee" in out


def test_rows_as_json(run, folder):
    rows = [json.loads(line) for line in run.ok("log", "dump", str(folder), "-r", "--json").lines]
    records = [row for row in rows if row["row"] == "record"]
    assert [row["offset"] for row in records] == [0, 1, 2]
    assert (records[0]["key"], records[0]["headers"]) == ("anna", [{"name": "h", "value": "1"}])
    assert (records[2]["key_base64"], records[2]["value_base64"]) == ("/w==", "/g==")
    assert all(row["crc_is_valid"] for row in rows if row["row"] == "batch")


def test_checking_a_whole_data_folder(run, folder):
    assert "nothing is wrong" in run.ok("log", "dump", str(folder.parent), "--check").out


def test_damage_is_found(run, folder):
    [segment] = folder.glob("*.log")
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    outcome = run("log", "dump", str(folder), "--check")
    assert outcome.code == 1
    assert "PROBLEM" in outcome.out and "checksum" in outcome.out
    assert "problem" in outcome.err


def test_a_path_that_is_not_there(run, tmp_path):
    outcome = run("log", "dump", str(tmp_path / "nowhere"))
    assert (outcome.code, outcome.out) == (1, "")
    assert "there is no file or folder" in outcome.err


def test_a_path_that_no_broker_keeps(run, tmp_path):
    (tmp_path / "notes.txt").write_text("")
    for path, expected in [
        (tmp_path, "is neither a broker's data folder nor a partition's"),
        (tmp_path / "notes.txt", "is neither a segment (.log), a producer snapshot"),
    ]:
        outcome = run("log", "dump", str(path), "--check")
        assert (outcome.code, outcome.out) == (1, "")
        assert expected in outcome.err


def test_an_empty_partition_is_fine(run, tmp_path):
    with Broker(data_dir=tmp_path / "data") as broker, broker.client() as client:
        client.create_topic("orders")
    assert "nothing is wrong" in run.ok("log", "dump", str(tmp_path / "data" / "orders-0"), "--check").out


def test_a_topic_that_goes_away_meanwhile_is_no_damage(folder):
    from runnel.disk.dump import ProblemRow, SegmentRow, dump
    from runnel.disk.os_files import OsFiles

    rows = dump(OsFiles(), str(folder.parent))
    first = next(rows)
    folder.rename(folder.with_name("orders-0.gone"))
    seen = [first, *rows]
    assert [row for row in seen if isinstance(row, ProblemRow)] == []
    assert [Path(row.path).parent.name for row in seen if isinstance(row, SegmentRow)] == [
        "__cluster_metadata-0"
    ]
