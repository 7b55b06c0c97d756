"""Proposals, percentiles, lag out of commits, and what is kept between runs."""

import json
from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from runnel.pipelines.insights.commits import CommitKey, read_key, read_offset
from runnel.pipelines.insights.history import Sample, add_sample, read_history
from runnel.pipelines.insights.lag import Committed, LogTimes, lag_history
from runnel.pipelines.insights.numbers import bucket_percentile, percentile
from runnel.pipelines.insights.proposals import Load, propose, skew_of

MIB = 1024 * 1024


def load(**changes):
    known = {"topic": "orders", "partitions": 6, "peak_bytes_per_s": 1.0 * MIB, "skew": 1.1}
    return Load(**{**known, "top_key_share": 0.01, "keyed_share": 1.0, "readers": 3, **changes})


def test_what_is_enough_is_kept():
    proposal = propose(load())
    assert (proposal.partitions, proposal.level) == (6, "good")


def test_more_traffic_needs_more_partitions():
    proposal = propose(load(peak_bytes_per_s=40.0 * MIB))
    assert (proposal.partitions, proposal.level) == (16, "warn")
    assert "40 MiB/s" in proposal.reason and "keys will move" in proposal.reason


def test_idle_readers_need_more_partitions():
    proposal = propose(load(readers=8, keyed_share=0.0))
    assert proposal.partitions == 8
    assert proposal.reason == "8 members read it, 2 of them have nothing to do"


def test_one_hot_key_is_not_mended_by_partitions():
    proposal = propose(load(skew=4.0, top_key_share=0.6))
    assert (proposal.partitions, proposal.issue) == (6, "uneven")
    assert "one key has 60% of the records" in proposal.reason


@given(
    st.integers(1, 500),
    st.floats(0, 1e10),
    st.floats(1, 50),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 900),
)
def test_partitions_are_never_taken_away_and_always_suffice(partitions, peak, skew, top, keyed, readers):
    proposal = propose(Load("t", partitions, peak, skew, top, keyed, readers))
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
    logs = {("orders", 0): LogTimes([100, 200, 300], [10, 20, 30]), ("orders", 1): LogTimes([200], [5])}
    commits = [
        Committed("billing", "orders", 0, 150, 8),
        Committed("billing", "orders", 0, 290, 30),
        Committed("billing", "orders", 1, 250, 1),
        Committed("audit", "gone", 0, 250, 1),
    ]
    history = lag_history(commits, logs, 100)
    assert history["billing"] == [(200, 12), (300, 4), (400, 4)]
    assert [lag for _, lag in history["audit"]] == [0, 0]


def test_history_is_kept_and_bad_lines_are_passed_over(tmp_path):
    path = tmp_path / "folder" / "history.jsonl"
    assert read_history(path) == []
    first, second = Sample(1, 10, 100, {"billing": 3}), Sample(2, 20, 100)
    add_sample(path, first)
    with path.open("a") as file:
        file.write("{half a line\n" + json.dumps({"unknown": 1}) + "\n")
    assert add_sample(path, second) == [first, second]
    assert read_history(path) == [first, second]
