"""The offsets of an archive and its log: the shared range, the range not archived yet, and the lost range."""

import pytest

from runnel.pipelines.audit import job
from runnel.pipelines.audit.archive import behind, beyond, lost_before, shared_ranges
from runnel.pipelines.audit.checker import PartitionChecker, PartitionInfo, PartitionResult
from runnel.pipelines.audit.counts import TIME_MAX_MS, Counts, OverTime
from runnel.pipelines.audit.expectations import check_groups
from runnel.pipelines.audit.findings import Finding, Kind, Level
from runnel.pipelines.audit.job import AuditOptions, outcome_of
from runnel.pipelines.broker import BrokerView


def result(start: int, end: int, *findings: Finding) -> PartitionResult:
    return PartitionResult("orders", 0, start, end, Counts(), OverTime(), list(findings))


def locations(findings: list[Finding]) -> list[tuple[Level, Kind, int, int]]:
    return [(entry.level, entry.kind, entry.first_offset, entry.last_offset) for entry in findings]


def test_records_deleted_before_they_were_archived_are_lost():
    found = lost_before([result(5000, 6000)], {0: 1000})
    assert locations(found) == [(Level.FAULT, Kind.LOST, 1000, 4999)]
    assert "up to 4,000 records" in found[0].text
    outcome = outcome_of("here", [result(5000, 6000)], found, [])
    assert (outcome.is_sound, outcome.counts.lost) == (False, 4000)
    assert lost_before([result(5000, 6000)], {0: 5000}) == []


def test_an_archive_started_after_retention_has_lost_nothing():
    assert lost_before([result(5000, 6000)], {}) == []


def test_records_after_the_archived_offset_are_a_notice():
    assert locations(behind([result(10, 60)], {0: 50})) == [(Level.NOTICE, Kind.ARCHIVE_BEHIND, 50, 59)]
    assert locations(behind([result(10, 60)], {0: 5})) == [(Level.NOTICE, Kind.ARCHIVE_BEHIND, 10, 59)]
    assert behind([result(10, 60)], {0: 60}) == []


def test_records_written_since_the_check_are_not_a_fault():
    # Checked up to 50, then both grew.
    assert beyond("orders", {0: 89}, {0: (0, 90)}) == []
    assert locations(beyond("orders", {0: 90}, {0: (0, 90)})) == [(Level.FAULT, Kind.ARCHIVE_EXTRA, 90, 90)]


def test_records_deleted_since_the_check_are_not_compared():
    damage = Finding(Level.FAULT, Kind.DAMAGED, "orders", 0, 70, 79, "")
    assert shared_ranges([result(0, 90)], {0: 80}, {0: (20, 100)}) == {0: (20, 80)}
    assert shared_ranges([result(0, 90, damage)], {0: 80}, {0: (20, 100)}) == {0: (20, 70)}
    assert shared_ranges([result(0, 90)], {0: 80}, {0: (80, 100)}) == {}


def test_invalid_timestamps_are_ignored():
    over_time = OverTime()
    for timestamp_ms in (-1, 1000, TIME_MAX_MS, 2**53):
        over_time.add(timestamp_ms, 1, 1)
    assert over_time.buckets == {1000: (1, 1)}


def test_a_group_that_consumes_meanwhile_is_not_beyond_the_end(runnel, monkeypatch):
    def send(number: int) -> None:
        with runnel.client() as client:
            client.send_all("orders", [(b"key", b"value")] * number)

    latest_offsets = BrokerView.latest_offsets

    def latest_offsets_and_then_more(self, partitions, **options):
        wanted = list(partitions)
        found = latest_offsets(self, wanted, **options)
        send(10)
        self.commit_group_offsets("billing", latest_offsets(self, wanted))
        return found

    with runnel.client() as client:
        client.create_topic("orders", partitions=1)
    send(5)
    monkeypatch.setattr(BrokerView, "latest_offsets", latest_offsets_and_then_more)
    info, _, positions = job._plan(AuditOptions(bootstrap=runnel.bootstrap_servers, topics=("orders",)))
    results = [PartitionChecker(known).finish() for known in info.values()]
    assert check_groups(positions, results) == []


@pytest.mark.parametrize("is_compacted", [True, False])
def test_a_result_states_whether_the_log_is_compacted(is_compacted):
    info = PartitionInfo("orders", 0, 0, 0, is_compacted=is_compacted)
    assert PartitionChecker(info).finish().is_compacted is is_compacted
