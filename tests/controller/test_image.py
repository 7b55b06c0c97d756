"""An image depends only on the replayed records, with or without snapshots."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.controller.image import BadMetadata, MetadataImage
from runnel.controller.snapshot import records_of
from runnel.controller.topic_names import check_topic_name
from runnel.model.errors import ApiError
from runnel.schemas.metadata import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    SnapshotRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from tests.controller.commands import Commands
from tests.controller.images import same

NAMES = st.sampled_from(["a", "b", "a.b", "a_b", "c"])
COMMANDS = st.one_of(
    st.builds("create {}:{}".format, NAMES, st.integers(1, 4)),
    st.builds("create {} retention.ms={}".format, NAMES, st.integers(1, 9)),
    st.builds("delete {}".format, NAMES),
    st.builds("grow {}:{}".format, NAMES, st.integers(1, 6)),
    st.builds("set topic/{} retention.ms={} +cleanup.policy=compact".format, NAMES, st.integers(1, 9)),
    st.builds("set topic/{} -retention.ms".format, NAMES),
    st.builds("set broker/{} message.max.bytes={}".format, st.sampled_from(["", "1"]), st.integers(1, 9)),
    st.builds("set broker/ -message.max.bytes".format),
    st.builds("set group/{} share.auto.offset.reset=earliest".format, NAMES),
    st.builds("quota user={} : producer_byte_rate={}".format, NAMES, st.integers(1, 9)),
    st.builds("quota user={} : -producer_byte_rate".format, NAMES),
    st.builds("scram +{}/{}/4096".format, NAMES, st.integers(1, 2)),
    st.builds("scram -{}/{}".format, NAMES, st.integers(1, 2)),
    st.builds("broker {}".format, st.integers(2, 3)),
    st.builds("fence {}".format, st.just(1)),
    st.builds("move {}-0:{}".format, NAMES, st.sampled_from(["1", "1+2", "2", "stop"])),
    st.just("feature metadata.version=30"),
)


@given(commands=st.lists(COMMANDS, max_size=25), data=st.data())
def test_a_snapshot_and_later_records_equal_the_full_log(commands: list[str], data: st.DataObject) -> None:
    talk = Commands()
    for command in commands:
        talk.play(command)
    cut = data.draw(st.integers(0, len(talk.batches)))
    before = MetadataImage()
    for batch in talk.batches[:cut]:
        before.replay_batch(batch, 0)
    # Encoded and decoded, as after a restart, into an image with previous content.
    image = MetadataImage()
    image.replay_batch([TopicRecord("left-over", b"9" * 16)], 1)
    stored = [encode_metadata_record(record) for record in [SnapshotRecord(), *records_of(before)]]
    image.replay_batch([_read(value) for value in stored], 2)
    for batch in talk.batches[cut:]:
        image.replay_batch([_read(encode_metadata_record(record)) for record in batch], 3)
    assert same(image, talk.image)
    assert image.version == (3 if cut < len(talk.batches) else 2)


def _read(value: bytes) -> MetadataRecord:
    record = decode_metadata_record(value)
    assert isinstance(record, MetadataRecord)
    return record


@given(commands=st.lists(COMMANDS, max_size=15))
def test_a_copy_is_independent(commands: list[str]) -> None:
    talk = Commands()
    talk.play("create kept:2 retention.ms=5")
    before, image = list(records_of(talk.image)), MetadataImage()
    image.replay_batch(before, 0)
    copy, frozen = talk.image.copy(), talk.image.frozen()
    for command in commands:
        talk.play(command)
    assert same(copy, image)
    assert list(records_of(frozen)) == before
    # And the other way round: what is done to the copy is not seen by the original.
    after = list(records_of(talk.image))
    copy.replay(RemoveTopicRecord(copy.topics["kept"].id))
    copy.replay(FeatureLevelRecord("metadata.version", 0))
    assert list(records_of(talk.image)) == after


def test_lookup_indexes_are_kept_up_to_date() -> None:
    talk = Commands()
    for command in ("create b", "create a.c", "create a:3"):
        talk.play(command)
    image = talk.image
    assert image.names_in_order() == ["a", "a.c", "b"]
    assert image.partition_count == 5
    assert image.colliding("a_c") == ["a.c"]
    assert image.topics_by_id[image.topics["a"].id] is image.topics["a"]
    assert image.partition("a", 2) is image.partition("b", 0), "equal states must share one object"
    assert image.partition("a", 3) is image.partition("a", -1) is image.partition("none", 0) is None
    talk.play("delete a.c b")
    assert image.names_in_order() == ["a"]
    assert image.colliding("a_c") == []
    assert image.partition_count == 3


ID, OTHER_ID = b"1" * 16, b"2" * 16


@pytest.mark.parametrize(
    "record",
    [
        TopicRecord("t", OTHER_ID),
        TopicRecord("u", ID),
        PartitionRecord(1, ID),
        PartitionRecord(0, OTHER_ID),
        PartitionChangeRecord(5, ID),
        PartitionChangeRecord(0, OTHER_ID),
        RemoveTopicRecord(OTHER_ID),
        BrokerRegistrationChangeRecord(9),
        BrokerRegistrationChangeRecord(1, broker_epoch=7),
        UnregisterBrokerRecord(9),
        RemoveAccessControlEntryRecord(ID),
        ClearElrRecord("nowhere"),
    ],
    ids=lambda record: repr(record)[:60],
)
def test_inconsistent_records_are_rejected(record: MetadataRecord) -> None:
    image = MetadataImage()
    image.replay(TopicRecord("t", ID))
    image.replay(RegisterBrokerRecord(1, broker_epoch=6))
    with pytest.raises(BadMetadata):
        image.replay(record)


def test_leader_and_partition_epochs_are_bumped_by_changes() -> None:
    image = MetadataImage()
    image.replay(TopicRecord("t", ID))
    image.replay(
        PartitionRecord(
            0, ID, [1, 2], [1, 2], leader=1, leader_epoch=0, partition_epoch=0, directories=[ID] * 2
        )
    )
    image.replay(PartitionChangeRecord(0, ID, isr=[1]))
    state = image.partition("t", 0)
    assert state is not None
    assert (state.isr, state.leader_epoch, state.partition_epoch) == ((1,), 0, 1)
    image.replay(PartitionChangeRecord(0, ID, leader=1))
    state = image.partition("t", 0)
    assert state is not None
    assert (state.leader, state.leader_epoch, state.partition_epoch) == (1, 1, 2)


def test_topic_names_are_validated() -> None:
    check_topic_name("x" * 249)
    with pytest.raises(ApiError, match="249"):
        check_topic_name("x" * 250)
    with pytest.raises(ApiError, match="empty"):
        check_topic_name("")
    with pytest.raises(ApiError, match="alphanumerics"):
        check_topic_name("tøpic")


def test_records_without_content_leave_the_content_version() -> None:
    image = MetadataImage()
    image.replay_batch([TopicRecord("t", b"9" * 16)], 5)
    assert image.content_version == 5
    image.replay_batch([NoOpRecord()], 6)
    image.replay_batch([NoOpRecord()], 7)
    assert (image.version, image.content_version) == (7, 5)
    image.replay_batch([NoOpRecord(), FeatureLevelRecord("metadata.version", 30)], 9)
    assert image.content_version == 9
