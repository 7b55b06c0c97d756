"""The records of `__consumer_offsets`: Kafka's encoding, and the same state after compaction."""

from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from runnel.coordinator.group.group import Group
from runnel.coordinator.group.member import Member, Protocols, select_protocol
from runnel.coordinator.group.offset_store import CommittedOffset
from runnel.coordinator.group.records import (
    empty_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
    stable_record,
)
from runnel.coordinator.group.settings import GroupSettings
from runnel.coordinator.group.shard import GroupShard
from runnel.coordinator.group.subscription import topic_names
from runnel.model.ids import NO_ID
from runnel.schemas.coordinator import encode_key, encode_value
from tests.coordinator.cluster import FakeCluster
from tests.coordinator.commands import subscription
from tests.coordinator.world import durable, load, logged

TOPIC_ID = bytes(range(16))


def text(value: str) -> bytes:
    return pack(">h", len(value)) + value.encode()


def blob(value: bytes) -> bytes:
    return pack(">i", len(value)) + value


def test_a_committed_offset_is_encoded_as_kafka_does() -> None:
    record = offset_record("g", "t", 3, CommittedOffset(42, 7, "note", 1000, -1, NO_ID))
    assert record.value is not None
    assert encode_key(record.key) == pack(">h", 1) + text("g") + text("t") + pack(">i", 3)
    assert encode_value(record.value, record.version) == pack(">hqi", 3, 42, 7) + text("note") + pack(
        ">q", 1000
    )


def test_an_offset_with_an_expire_timestamp_uses_the_old_version() -> None:
    record = offset_record("g", "t", 3, CommittedOffset(42, 7, "note", 1000, 2000, TOPIC_ID))
    assert record.value is not None
    expected = pack(">hq", 1, 42) + text("note") + pack(">qq", 1000, 2000)
    assert encode_value(record.value, record.version) == expected


def test_an_offset_includes_the_topic_id() -> None:
    record = offset_record("g", "t", 3, CommittedOffset(42, 7, "note", 1000, -1, TOPIC_ID))
    assert record.value is not None
    tagged = b"\x01\x00\x10" + TOPIC_ID
    expected = pack(">hqi", 4, 42, 7) + b"\x05note" + pack(">q", 1000) + tagged
    assert encode_value(record.value, record.version) == expected


def test_a_generation_is_encoded_as_kafka_does() -> None:
    group = Group("g", generation=5, protocol_type="consumer", protocol="range")
    member = Member("m", "i", "c", "/h", 10, 20, (("range", b"wish"), ("sticky", b"other")))
    record = stable_record(group, "m", [member], {"m": b"work"}, 1000)
    assert record.value is not None
    assert encode_key(record.key) == pack(">h", 2) + text("g")
    expected = pack(">h", 3) + text("consumer") + pack(">i", 5) + text("range") + text("m") + pack(">q", 1000)
    expected += pack(">i", 1) + text("m") + text("i") + text("c") + text("/h") + pack(">ii", 20, 10)
    expected += blob(b"wish") + blob(b"work")
    assert encode_value(record.value, record.version) == expected


def test_an_empty_group_is_encoded_as_kafka_does() -> None:
    record = empty_record(Group("g", generation=5, protocol_type="consumer"), 1000)
    assert record.value is not None
    expected = pack(">h", 3) + text("consumer") + pack(">ihhqi", 6, -1, -1, 1000, 0)
    assert encode_value(record.value, record.version) == expected


def a_group(group_id: str, generation: int, member_id: str) -> Group:
    group = Group(group_id, generation=generation, protocol_type="consumer", protocol="range")
    if member_id:
        group.add(Member(member_id, None, "c", "/h", 10, 20, (("range", b"w"),)), "consumer")
    return group


ids = st.sampled_from(["g", "h"])
offsets = st.tuples(ids, st.sampled_from(["t", "u"]), st.integers(0, 2), st.integers(0, 99))
records = st.one_of(
    offsets.map(lambda at: offset_record(*at[:3], CommittedOffset(at[3], -1, "", 1, -1, NO_ID))),
    offsets.map(lambda at: offset_tombstone(*at[:3])),
    ids.map(group_tombstone),
    st.tuples(ids, st.integers(1, 9), st.sampled_from(["m", "n"])).map(
        lambda at: stable_record(group := a_group(*at), at[2], group.members.values(), {}, 5)
    ),
    st.tuples(ids, st.integers(1, 9)).map(lambda at: empty_record(a_group(*at, ""), 5)),
)


@given(st.lists(records, max_size=30), st.booleans())
def test_a_compacted_log_produces_the_same_state(history: list, keeps_tombstones: bool) -> None:
    log = [logged(offset, each) for offset, each in enumerate(history)]
    compacted = [
        entry
        for entry in log
        if all(entry.key != later.key for later in log[entry.offset + 1 :])
        and (keeps_tombstones or entry.value is not None)
    ]
    whole = load(GroupShard(GroupSettings(), FakeCluster()), log)
    short = load(GroupShard(GroupSettings(), FakeCluster()), compacted)
    for group_id in ("g", "h"):
        assert durable(whole, group_id) == durable(short, group_id)


@given(st.lists(st.text(max_size=9).filter(str.isascii), max_size=4), st.binary(max_size=9))
def test_subscriptions_are_decoded_and_malformed_ones_ignored(topics: list[str], tail: bytes) -> None:
    whole = subscription(*topics)
    assert topic_names(whole + tail) == topics
    for end in range(6, len(whole) - 8):
        assert topic_names(whole[:end]) is None


wishes = st.lists(st.sampled_from("abcd"), unique=True, min_size=1).map(
    lambda names: tuple((name, b"") for name in names)
)


@given(st.lists(wishes, min_size=1, max_size=6))
def test_the_selected_protocol_is_common_and_preferred(members: list[Protocols]) -> None:
    chosen = select_protocol(members)
    common = [name for name in "abcd" if all(name in dict(member) for member in members)]
    if not common:
        assert chosen is None
        return
    votes = [next(name for name, _ in member if name in common) for member in members]
    assert chosen in common
    assert votes.count(str(chosen)) == max(votes.count(name) for name in common)
