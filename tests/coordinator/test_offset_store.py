"""Offsets with and without transactions, compared with a reference that scans the whole log."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from runnel.coordinator.contract import ProducerIdAndEpoch
from runnel.coordinator.group.settings import GroupSettings
from runnel.coordinator.group.shard import GroupShard
from runnel.schemas.coordinator import CoordinatorRecord, read_record
from runnel.schemas.group import OffsetCommitKey, OffsetCommitValue
from tests.coordinator.cluster import FakeCluster
from tests.coordinator.commands import Commands
from tests.coordinator.world import Logged, load

Key = tuple[str, str, int]

GROUPS = ["g", "h"]
PARTITIONS = ["t-0", "u-0"]
PRODUCERS = ["7/0", "8/0"]

groups = st.sampled_from(["g", "g", "g", "h"])
marks = st.tuples(st.sampled_from(PARTITIONS), st.integers(0, 99)).map(lambda at: f"{at[0]}:{at[1]}")
producers = st.sampled_from(PRODUCERS)
commands = st.one_of(
    st.tuples(groups, marks).map(lambda at: f"commit {at[0]} {at[1]}"),
    st.tuples(groups, producers, marks, marks).map(
        lambda at: f"txn-commit {at[0]} producer={at[1]} {at[2]} {at[3]}"
    ),
    st.tuples(groups, producers, marks).map(lambda at: f"txn-commit {at[0]} producer={at[1]} {at[2]}"),
    st.tuples(producers, st.sampled_from(["commit", "abort"])).map(lambda at: f"end {at[0]} {at[1]}"),
    st.tuples(groups, st.sampled_from(PARTITIONS)).map(lambda at: f"delete-offsets {at[0]} {at[1]}"),
    groups.map(lambda group: f"delete {group}"),
    st.sampled_from(["drop-topic t", "drop-topic u", "reload", "wait 100000"]),
    st.sampled_from(["log refuses NOT_ENOUGH_REPLICAS", "log works", "log works"]),
)


def offset_records(log: list[Logged]) -> Iterator[tuple[Logged, Key, int | None]]:
    for entry in log:
        if entry.key is None:
            continue
        record = read_record(GroupShard.record_types, entry.key, entry.value)
        assert isinstance(record, CoordinatorRecord)
        if isinstance(record.key, OffsetCommitKey):
            value = record.value
            offset = value.offset if isinstance(value, OffsetCommitValue) else None
            yield entry, (record.key.group, record.key.topic, record.key.partition), offset


def end_of(log: list[Logged], entry: Logged) -> Logged | None:
    """The end of the transaction that a record is part of."""
    later = (other for other in log if other.offset > entry.offset)
    return next((other for other in later if other.key is None and other.producer == entry.producer), None)


def told_by(log: list[Logged]) -> tuple[dict[Key, int], set[Key]]:
    """Committed and pending offsets according to the reference."""
    committed: dict[Key, int] = {}
    pending: set[Key] = set()
    for entry, key, offset in offset_records(log):
        if offset is None:
            committed.pop(key, None)
            pending.discard(key)
            continue
        end = None if entry.producer is None else end_of(log, entry)
        if entry.producer is None or (end is not None and end.is_commit):
            committed[key] = offset
        elif end is None:
            pending.add(key)
    return committed, pending


def known_to(shard: GroupShard) -> tuple[dict[Key, int], set[Key]]:
    committed: dict[Key, int] = {}
    pending: set[Key] = set()
    for group_id, offsets in shard.offsets.groups():
        for topic, partition, mark in offsets.all_committed():
            committed[group_id, topic, partition] = mark.offset
        pending |= {(group_id, *at) for changes in offsets.pending.values() for at in changes}
    return committed, pending


def compacted(log: list[Logged]) -> list[Logged]:
    """The log after compaction: up to the first open transaction the last record of each key, without aborted
    ones."""
    dirty = [entry for entry, _, _ in offset_records(log) if entry.producer and end_of(log, entry) is None]
    end_offset = dirty[0].offset if dirty else len(log)
    kept: list[Logged] = []
    for entry in log:
        if entry.key is None or entry.offset >= end_offset:
            kept.append(entry)
            continue
        end = None if entry.producer is None else end_of(log, entry)
        if end is not None and not end.is_commit:
            continue
        kept = [other for other in kept if other.key != entry.key]
        kept.append(entry)
    return kept


def loaded_commands() -> Commands:
    commands = Commands()
    commands.play("set offsets_retention_ms=60000 offsets_check_interval_ms=10000")
    commands.play("reload")
    return commands


@given(st.lists(commands, min_size=10, max_size=60))
def test_offsets_match_the_log(history: list[str]) -> None:
    commands = loaded_commands()
    for command in history:
        commands.play(command)
        assert known_to(commands.world.shard) == told_by(commands.world.log)
    for log in (commands.world.log, compacted(commands.world.log)):
        for defers in (False, True):
            loaded = load(GroupShard(GroupSettings(), FakeCluster()), log, defers=defers)
            assert known_to(loaded) == known_to(commands.world.shard)
            assert loaded.groups.keys() >= {group for group, _, _ in known_to(loaded)[0]}


@given(st.lists(commands, min_size=5, max_size=40), st.sampled_from(GROUPS))
def test_stable_offsets_are_not_changed_by_a_transaction_end(history: list[str], group: str) -> None:
    commands = loaded_commands()
    for command in history:
        commands.play(command)
    fetch = f"fetch {group} stable=1 " + " ".join(PARTITIONS)
    before = commands.play(fetch)
    for producer in PRODUCERS:
        producer_id, epoch = map(int, producer.split("/"))
        commands.world.end_transaction(ProducerIdAndEpoch(producer_id, epoch), is_commit=True)
    after = commands.play(fetch)
    for seen, final in zip(before, after, strict=True):
        assert seen == final or seen.endswith("UNSTABLE_OFFSET_COMMIT")
    assert not any(line.endswith("UNSTABLE_OFFSET_COMMIT") for line in after)


def test_loading_keeps_the_later_of_two_commits() -> None:
    commands = loaded_commands()
    for command in ("commit g t-0:1", "txn-commit g producer=7/0 t-0:2", "commit g u-0:3"):
        commands.play(command)
    commands.play("txn-commit g producer=8/0 u-0:4")
    commands.play("commit g u-0:5")
    for producer in PRODUCERS:
        commands.play(f"end {producer} commit")
    loaded = load(GroupShard(GroupSettings(), FakeCluster()), commands.world.log, defers=True)
    assert known_to(loaded) == ({("g", "t", 0): 2, ("g", "u", 0): 5}, set())
    assert known_to(commands.world.shard) == known_to(loaded)
