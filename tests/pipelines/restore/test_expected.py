"""What a stopped broker had made durable and is missing in its folder is reported as lost."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from runnel.client.groups import Groups
from runnel.log.names import MANIFEST, RECOVERY_POINTS
from runnel.model.ids import TopicPartition
from runnel.pipelines.restore.data_folder import DataFolder
from runnel.pipelines.restore.expected import ExpectedContents
from runnel.pipelines.restore.segments import Scan, scan
from runnel.testing import Broker

pytestmark = pytest.mark.runnel({"log.segment.bytes": 1024 * 1024})

PLACE = TopicPartition("orders", 0)


@pytest.fixture
def stopped(runnel: Broker) -> Iterator[Path]:
    """The folder of a broker that stopped cleanly: a topic of three files, and a group."""
    with runnel.client() as client:
        client.create_topic("orders", partitions=1, settings={"segment.bytes": "1048576"})
        for _ in range(3):
            client.send("orders", bytes(700_000))
        client.run(lambda cluster: Groups(cluster).commit("readers", {PLACE: 2}))
    runnel.stop()
    yield Path(str(runnel.data_dir))


def checked(folder: Path) -> Scan:
    (found,) = DataFolder(str(folder)).checked([scan(folder / "orders-0", "orders", 0, 0)])
    return found


def files_of(folder: Path) -> list[Path]:
    return sorted((folder / "orders-0").glob("*.log"))


def flip_last_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def forget_shutdown(folder: Path) -> None:
    """As a broker leaves it that was killed before it noted anything."""
    os.remove(folder / MANIFEST)
    os.remove(folder / RECOVERY_POINTS)


def test_an_intact_folder_has_no_findings(stopped):
    folder = DataFolder(str(stopped))
    topics = folder.topics()
    assert {topic.name for topic in topics} >= {"orders", "__consumer_offsets"}
    for topic in topics:
        for found in folder.checked(folder._internal_topic(topic.name)):
            assert (found.damages, found.notes, found.torn_bytes) == ([], [], 0)
        assert ExpectedContents(stopped).missing(topic.name, folder._partitions_of(topic.name)) == []


def test_a_flipped_byte_in_the_last_batch_is_loss_after_a_clean_stop(stopped):
    flip_last_byte(files_of(stopped)[-1])
    found = checked(stopped)
    (reported,) = found.damages
    assert "orders-0" in reported and "offsets up to 2 are lost" in reported
    assert found.torn_bytes == 0


def test_loss_is_detected_from_the_durable_offsets_alone(stopped):
    os.remove(stopped / MANIFEST)
    assert checked(stopped).damages == []
    # Only the name of the segment shows how far the log extended.
    flip_last_byte(files_of(stopped)[-1])
    assert checked(stopped).damages == [
        "orders-0: offsets 2 to 2 are lost, although they were durable",
    ]


def test_after_a_crash_it_is_a_torn_end(stopped):
    forget_shutdown(stopped)
    flip_last_byte(files_of(stopped)[-1])
    found = checked(stopped)
    assert (found.damages, found.notes) == ([], [])
    assert found.torn_bytes > 700_000


def test_bytes_behind_what_was_closed_are_no_loss(stopped):
    with files_of(stopped)[-1].open("ab") as file:
        file.write(b"torn")
    found = checked(stopped)
    assert (found.damages, found.torn_bytes) == ([], 4)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_file_that_is_missing_is_reported(stopped, number):
    os.remove(files_of(stopped)[number])
    (reported,) = checked(stopped).damages
    assert f"{number:020d}.log is missing: offsets {number} to {number} are lost" in reported


def test_a_file_that_is_missing_after_a_crash_is_a_gap(stopped):
    forget_shutdown(stopped)
    os.remove(files_of(stopped)[1])
    found = checked(stopped)
    assert found.damages == []
    (reported,) = found.notes
    assert "offsets 1 to 1 are in no file" in reported
    # A compacted log has such gaps.
    (stopped / "orders-0" / "cleaner-offset").write_bytes(b"2\n")
    assert checked(stopped).notes == []


@pytest.mark.parametrize("cut_bytes", [10, 800_000])
def test_a_file_that_is_cut_is_reported_once(stopped, cut_bytes):
    first, *_ = files_of(stopped)
    os.truncate(first, max(first.stat().st_size - cut_bytes, 0))
    assert len(checked(stopped).damages) == 1


def test_a_partition_that_is_missing_is_reported(stopped):
    shutil.rmtree(stopped / "orders-0")
    (found,) = ExpectedContents(stopped).missing("orders", [])
    assert found.damages == ["orders-0: its folder is missing"]
    assert DataFolder(str(stopped)).checked([found])[0].ranges == []


def test_damage_to_the_offsets_of_groups_is_reported(stopped):
    assert DataFolder(str(stopped)).group_offsets().committed["readers"] == {PLACE: 2}
    (path,) = [path for path in stopped.glob("__consumer_offsets-*/*.log") if path.stat().st_size]
    flip_last_byte(path)
    groups = DataFolder(str(stopped)).group_offsets()
    assert groups.committed == {}
    assert groups.damages and path.parent.name in groups.damages[0]
