"""Proposals, percentiles, lag out of commits, and what is kept between runs."""

import json
from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from runnel.pipelines.insights.broker_facts import Folder, GroupLag, readers_in, volumes_of
from runnel.pipelines.insights.commits import CommitKey, read_key, read_offset
from runnel.pipelines.insights.history import Sample, add_sample, read_history
from runnel.pipelines.insights.lag import EndOffsets, GroupCommit, lag_history, unchanged_offsets
from runnel.pipelines.insights.numbers import bucket_percentile, percentile
from runnel.pipelines.insights.proposals import Load, propose, skew_of

MIB = 1024 * 1024


def load(**changes):
    known = {"topic": "orders", "partitions": 6, "peak_bytes_per_s": 1.0 * MIB, "skew": 1.1}
    more = {"top_key_share": 0.01, "keyed_share": 1.0, "readers": 3, "records": 1000}
    return Load(**{**known, **more, **changes})


def test_what_is_enough_is_kept():
    proposal = propose(load())
    assert (proposal.partitions, proposal.level) == (6, "good")


def test_more_traffic_needs_more_partitions():
    proposal = propose(load(peak_bytes_per_s=40.0 * MIB))
    assert (proposal.partitions, proposal.level) == (16, "warn")
    assert "40 MiB/s" in proposal.reason and "keys will map" in proposal.reason


def test_idle_readers_need_more_partitions():
    proposal = propose(load(readers=8, keyed_share=0.0))
    assert proposal.partitions == 8
    assert proposal.reason == "8 members consume it, 2 of them are idle"


def test_more_partitions_do_not_help_one_hot_key():
    proposal = propose(load(skew=4.0, top_key_share=0.6))
    assert (proposal.partitions, proposal.issue) == (6, "uneven")
    assert "one key has 60% of the records" in proposal.reason


def test_a_handful_of_records_is_not_uneven():
    assert propose(load(skew=6.0, top_key_share=1.0, records=3)).level == "good"


def test_members_that_read_other_topics_are_not_idle():
    assert readers_in([{"orders"}, {"clicks"}, {"clicks", "orders"}]) == {"orders": 2, "clicks": 2}
    assert readers_in([{"orders"}, {"orders"}, set()]) == {"orders": 3}


@given(
    st.integers(1, 500),
    st.floats(0, 1e10),
    st.floats(1, 50),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 900),
    st.integers(0, 10**6),
)
def test_partitions_are_never_taken_away_and_always_suffice(
    partitions, peak, skew, top, keyed, readers, records
):
    proposal = propose(Load("t", partitions, peak, skew, top, keyed, readers, records))
    assert proposal.partitions >= partitions
    assert proposal.partitions >= readers
    assert peak / proposal.partitions <= 5 * MIB


def test_skew_is_the_largest_over_the_average():
    assert skew_of([10.0, 10.0]) == 1.0
    assert skew_of([30.0, 0.0, 0.0]) == 3.0
    assert skew_of([0.0, 0.0]) == 1.0


@given(st.lists(st.integers(0, 100), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_the_first_value_that_covers_its_share(values, share):
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
    assert sum(value < found for value in values) < share * len(values) + 1


def test_a_percentile_of_buckets_lies_in_its_bucket():
    assert bucket_percentile({0: 1, 10: 98, 20: 1}, 0.5, float) == 10.5
    assert bucket_percentile({}, 0.5, float) == 0.0


def commit_key(group, topic, partition, version=1):
    texts = b"".join(pack(">h", len(text)) + text.encode() for text in (group, topic))
    return pack(">h", version) + texts + pack(">i", partition)


def test_commits_are_read_and_all_else_is_not():
    assert read_key(commit_key("billing", "orders", 3)) == CommitKey("billing", "orders", 3)
    assert read_key(commit_key("billing", "orders", 3, version=2)) is None
    assert read_key(commit_key("billing", "orders", 3)[:-2]) is None
    assert read_key(b"") is None
    assert read_offset(pack(">hq", 3, 17) + b"more") == 17
    assert read_offset(None) is None
    assert read_offset(b"\x00") is None


def test_lag_is_how_far_the_log_had_come_when_groups_committed():
    logs = {("orders", 0): EndOffsets([100, 200, 300], [10, 20, 30]), ("orders", 1): EndOffsets([200], [5])}
    commits = [
        GroupCommit("billing", "orders", 0, 150, 8),
        GroupCommit("billing", "orders", 0, 290, 30),
        GroupCommit("billing", "orders", 1, 250, 1),
        GroupCommit("audit", "gone", 0, 250, 1),
    ]
    history = lag_history(commits, logs, 100, 1000)
    assert history["billing"] == [(200, 12), (300, 4)]
    assert history["audit"] == [(300, 0)]


def test_lag_is_reported_up_to_now_whatever_timestamp_a_record_has():
    logs = {("orders", 0): EndOffsets([100, 10**16], [10, 20])}
    history = lag_history([GroupCommit("billing", "orders", 0, 150, 8)], logs, 100, 350)
    assert history["billing"] == [(200, 2), (300, 2), (350, 2)]


def test_partitions_in_which_a_group_is_idle_count_as_well():
    commits = [GroupCommit("billing", "orders", 0, 150, 8), GroupCommit("billing", "orders", 0, 120, 7)]
    lags = [
        GroupLag("billing", "orders", 0, 8, 10),
        GroupLag("billing", "orders", 1, 3, 10),
        GroupLag("left", "orders", 1, 3, 10),
    ]
    assert unchanged_offsets(lags, commits) == [GroupCommit("billing", "orders", 1, 120, 3)]


def test_a_disk_counts_once_however_many_brokers_are_on_it():
    gib = 2**30
    # Between two answers something was written.
    shared = [Folder("a", f"/data/{number}", 100 * gib, 40 * gib - number * MIB) for number in range(3)]
    assert volumes_of(shared) == [(100 * gib, 40 * gib - 2 * MIB)]
    contained = [Folder("a", "/data", 100 * gib, free * gib) for free in (40, 38)]
    assert volumes_of(contained) == [(100 * gib, 38 * gib)]


def test_disks_that_differ_count_each():
    gib = 2**30
    folders = [
        Folder("a", "/first", 100 * gib, 40 * gib),
        Folder("a", "/second", 100 * gib, 20 * gib),
        Folder("a", "/third", 200 * gib, 40 * gib),
        Folder("b", "/first", 100 * gib, 40 * gib),
        Folder("c", "/unknown", -1, -1),
    ]
    assert volumes_of(folders) == [(each.total_bytes, each.usable_bytes) for each in folders[:4]]


def test_history_is_kept_and_bad_lines_are_passed_over(tmp_path):
    path = tmp_path / "folder" / "history.jsonl"
    assert read_history(path) == []
    first, second = Sample(1, 10, 100, {"billing": 3}), Sample(2, 20, 100)
    add_sample(path, first)
    with path.open("a") as file:
        file.write("{half a line\n" + json.dumps({"unknown": 1}) + "\n")
    assert add_sample(path, second) == [first, second]
    assert read_history(path) == [first, second]
