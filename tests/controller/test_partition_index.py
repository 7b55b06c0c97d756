"""The index of partitions by broker equals what a look at all partitions finds."""

from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.controller.image import MetadataImage
from runnel.controller.partition_index import BLOCK, PartitionSet, partitions_at, topic_of
from runnel.schemas.metadata import (
    ClearElrRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

IDS = {name: name.encode() * 16 for name in "abc"}
PARTITIONS = 3
BROKERS = st.lists(st.integers(1, 4), unique=True, max_size=3)
CHANGES = st.one_of(
    st.builds(
        lambda name, index, isr, eligible, leader, adding: PartitionChangeRecord(
            index,
            IDS[name],
            isr=isr,
            leader=leader,
            adding_replicas=adding,
            eligible_leader_replicas=eligible,
        ),
        st.sampled_from("abc"),
        st.integers(0, PARTITIONS - 1),
        BROKERS | st.none(),
        BROKERS | st.none(),
        st.sampled_from([-2, -1, 1, 2, 3]),
        BROKERS | st.none(),
    ),
    st.builds(lambda name: RemoveTopicRecord(IDS[name]), st.sampled_from("abc")),
    st.builds(ClearElrRecord, st.sampled_from(["a", ""])),
)


def new_topic(name: str, count: int = PARTITIONS) -> list[MetadataRecord]:
    created = [
        PartitionRecord(index, IDS[name], [1, 2, 3], [1, 2, 3], leader=1, leader_epoch=0, partition_epoch=0)
        for index in range(count)
    ]
    return [TopicRecord(name, IDS[name]), *created]


def listed(partitions: PartitionSet) -> set[tuple[bytes, int]]:
    return {(topic_of(key), index) for key, bits in partitions.items() for index in partitions_at(key, bits)}


def check(image: MetadataImage) -> None:
    states = {
        (topic.id, index): state
        for topic in image.topics.values()
        for index, state in enumerate(topic.partitions)
    }
    index = image.index
    for broker in range(5):
        assert listed(index.in_sync.get(broker, {})) == {at for at, s in states.items() if broker in s.isr}
        assert listed(index.eligible.get(broker, {})) == {
            at for at, s in states.items() if broker in s.eligible
        }
        assert index.led.get(broker, 0) == sum(state.leader == broker for state in states.values())
    assert listed(index.leaderless) == {at for at, state in states.items() if state.leader == -1}
    assert listed(index.unbalanced) == {at for at, s in states.items() if s.leader not in (-1, s.replicas[0])}
    assert listed(index.moving) == {at for at, state in states.items() if state.adding or state.removing}
    assert listed(index.with_eligible) == {
        at for at, s in states.items() if s.eligible or s.last_known_eligible
    }


@given(changes=st.lists(CHANGES, max_size=30), built_after=st.integers(0, 30))
def test_the_index_is_kept_up_to_date(changes: list[MetadataRecord], built_after: int) -> None:
    image = MetadataImage()
    for name in "abc":
        image.replay_batch(new_topic(name), 0)
    for number, change in enumerate(changes):
        if number == built_after:
            check(image)
        try:
            image.replay_batch([change], 0)
        except ValueError:
            continue  # the topic is removed already
    check(image)
    check(image.copy())


@settings(max_examples=10)
@given(changes=st.lists(CHANGES, max_size=12))
def test_the_image_may_change_while_its_index_is_built(changes: list[MetadataRecord]) -> None:
    image = MetadataImage()
    for name in "abc":
        image.replay_batch(new_topic(name, 2100), 0)
    steps = image.build_index()
    for number, change in enumerate(changes):
        if number % 4 == 0:
            next(steps, None)
        try:
            image.replay_batch([change], 0)
        except ValueError:
            continue
    check(image)


def test_a_large_topic_has_several_entries() -> None:
    image = MetadataImage()
    image.replay_batch(new_topic("a", 2 * BLOCK + 5), 0)
    check(image)
    assert len(image.index.in_sync[1]) == 3
    for index in (BLOCK - 1, BLOCK, 2 * BLOCK + 4):
        image.replay(PartitionChangeRecord(index, IDS["a"], isr=[1, 3], leader=3))
    check(image)
    assert listed(image.index.unbalanced) == {(IDS["a"], index) for index in (4095, 4096, 8196)}
