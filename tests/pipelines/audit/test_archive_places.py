"""Where an archive stands beside its log: what both should have, what comes later, and what is nowhere."""

import pytest

from runnel.pipelines.audit import job
from runnel.pipelines.audit.archive import behind, beyond, lost_before, shared_ranges
from runnel.pipelines.audit.counts import TIME_MAX_MS, Counts, OverTime
from runnel.pipelines.audit.expectations import judge_groups
from runnel.pipelines.audit.findings import Finding, Kind, Level
from runnel.pipelines.audit.job import AuditOptions, outcome_of
from runnel.pipelines.audit.judge import PartitionJudge, PartitionVerdict, Terms
from runnel.pipelines.broker import BrokerView


def verdict(start: int, end: int, *findings: Finding) -> PartitionVerdict:
    return PartitionVerdict("orders", 0, start, end, Counts(), OverTime(), list(findings))


def places(findings: list[Finding]) -> list[tuple[Level, Kind, int, int]]:
    return [(entry.level, entry.kind, entry.first_offset, entry.last_offset) for entry in findings]


def test_what_went_from_the_log_before_it_was_archived_is_lost():
    found = lost_before([verdict(5000, 6000)], {0: 1000})
    assert places(found) == [(Level.FAULT, Kind.LOST, 1000, 4999)]
    assert "up to 4,000 records" in found[0].text
    outcome = outcome_of("here", [verdict(5000, 6000)], found, [])
    assert (outcome.is_sound, outcome.counts.lost) == (False, 4000)
    assert lost_before([verdict(5000, 6000)], {0: 5000}) == []


def test_an_archive_that_began_when_the_log_had_been_cut_has_lost_nothing():
    assert lost_before([verdict(5000, 6000)], {}) == []


def test_what_the_log_has_is_still_to_be_archived():
    assert places(behind([verdict(10, 60)], {0: 50})) == [(Level.NOTICE, Kind.ARCHIVE_BEHIND, 50, 59)]
    assert places(behind([verdict(10, 60)], {0: 5})) == [(Level.NOTICE, Kind.ARCHIVE_BEHIND, 10, 59)]
    assert behind([verdict(10, 60)], {0: 60}) == []


def test_what_came_since_the_log_was_judged_is_no_fault():
    # Judged up to 50, and then both went on.
    assert beyond("orders", {0: 89}, {0: (0, 90)}) == []
    assert places(beyond("orders", {0: 90}, {0: (0, 90)})) == [(Level.FAULT, Kind.ARCHIVE_EXTRA, 90, 90)]


def test_what_retention_took_since_the_log_was_judged_is_not_compared():
    damage = Finding(Level.FAULT, Kind.DAMAGED, "orders", 0, 70, 79, "")
    assert shared_ranges([verdict(0, 90)], {0: 80}, {0: (20, 100)}) == {0: (20, 80)}
    assert shared_ranges([verdict(0, 90, damage)], {0: 80}, {0: (20, 100)}) == {0: (20, 70)}
    assert shared_ranges([verdict(0, 90)], {0: 80}, {0: (80, 100)}) == {}


def test_times_that_cannot_be_drawn_are_left_out():
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
    terms, _, positions = job._plan(AuditOptions(bootstrap=runnel.bootstrap_servers, topics=("orders",)))
    verdicts = [PartitionJudge(known).ended() for known in terms.values()]
    assert judge_groups(positions, verdicts) == []


@pytest.mark.parametrize("is_compacted", [True, False])
def test_a_verdict_says_whether_the_log_is_compacted(is_compacted):
    terms = Terms("orders", 0, 0, 0, is_compacted=is_compacted)
    assert PartitionJudge(terms).ended().is_compacted is is_compacted
