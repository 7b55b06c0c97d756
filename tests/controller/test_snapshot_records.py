"""Every record that Kafka 4.3 may write is kept by the image and its snapshots."""

import pytest

from runnel.controller.image import MetadataImage
from runnel.controller.snapshot import records_of
from runnel.controller.snapshot_batches import read_snapshot, snapshot_batches
from runnel.controller.transactions import OpenTransaction
from runnel.controller.values import MIGRATING_DIRECTORY
from runnel.schemas.metadata import (
    METADATA_RECORDS,
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    DelegationTokenRecord,
    EndTransactionRecord,
    EntityData,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from tests.controller.images import same

ID, OTHER_ID = b"1" * 16, b"2" * 16

KEPT: list[MetadataRecord] = [
    FeatureLevelRecord("metadata.version", 30),
    FeatureLevelRecord("eligible.leader.replicas.version", 1),
    RegisterBrokerRecord(
        1,
        incarnation_id=ID,
        broker_epoch=5,
        end_points=[BrokerEndpoint("CLIENT", "here", 9092, 1)],
        features=[BrokerFeature("metadata.version", 7, 30)],
        rack="a",
        fenced=False,
        log_dirs=[ID, OTHER_ID],
        cordoned_log_dirs=[OTHER_ID],
    ),
    RegisterControllerRecord(
        3,
        ID,
        end_points=[ControllerEndpoint("CONTROLLER", "here", 9093)],
        features=[ControllerFeature("kraft.version", 0, 1)],
    ),
    TopicRecord("t", ID),
    PartitionRecord(
        0,
        ID,
        [1, 2, 3],
        [2],
        adding_replicas=[2],
        removing_replicas=[3],
        leader=2,
        leader_recovery_state=1,
        leader_epoch=7,
        partition_epoch=8,
        directories=[ID, OTHER_ID, ID],
        eligible_leader_replicas=[1],
        last_known_elr=[3],
    ),
    ConfigRecord(2, "t", "retention.ms", "5"),
    ConfigRecord(16, "subscription", "interval.ms", "5000"),
    ConfigRecord(4, "1", "some.kafka.setting", "kept though unknown"),
    ClientQuotaRecord([EntityData("user", None)], "producer_byte_rate", 1.5),
    ProducerIdsRecord(-1, next_producer_id=3000),
    AccessControlEntryRecord(ID, 2, "t", 3, "User:a", "*", 3, 3),
    UserScramCredentialRecord("a", 1, b"salt", b"stored", b"server", 4096),
    DelegationTokenRecord("User:a", "User:b", ["User:c"], 1, 2, 3, "token"),
]


def image_of(records: list[MetadataRecord]) -> MetadataImage:
    image = MetadataImage()
    image.replay_batch(records, len(records))
    return image


def test_a_snapshot_has_the_same_records_in_the_same_order() -> None:
    image = image_of(KEPT)
    assert list(records_of(image)) == KEPT
    batches = [memoryview(batch) for batch in snapshot_batches(image, 1000, 1)]
    copy = MetadataImage()
    for records in read_snapshot(batches):
        copy.replay_batch(records, len(KEPT))
    assert same(copy, image)


def test_every_kind_of_record_can_be_replayed() -> None:
    # The others are about registered brokers, topics and ACLs, and are covered below or by the transcripts.
    lone = {kind for kind in METADATA_RECORDS if METADATA_RECORDS[kind].__name__ not in NEED_OTHERS}
    for kind in lone:
        MetadataImage().replay_batch([METADATA_RECORDS[kind]()], 1)


NEED_OTHERS = {
    "PartitionRecord",
    "PartitionChangeRecord",
    "RemoveTopicRecord",
    "UnregisterBrokerRecord",
    "FenceBrokerRecord",
    "UnfenceBrokerRecord",
    "BrokerRegistrationChangeRecord",
    "RemoveAccessControlEntryRecord",
}


def test_brokers_are_fenced_and_unfenced_by_records_of_any_release() -> None:
    image = image_of(KEPT)
    image.replay(FenceBrokerRecord(1, 5))
    assert image.brokers[1].is_fenced
    image.replay(UnfenceBrokerRecord(1, 5))
    assert image.brokers[1].is_active
    image.replay(BrokerRegistrationChangeRecord(1, 5, fenced=1, in_controlled_shutdown=1, log_dirs=[ID]))
    broker = image.brokers[1]
    assert (broker.is_fenced, broker.is_stopping, broker.directories) == (True, True, (ID,))
    assert broker.cordoned == (OTHER_ID,)
    image.replay(BrokerRegistrationChangeRecord(1, 5, cordoned_log_dirs=[]))
    assert image.brokers[1].cordoned == ()
    image.replay(ZkMigrationStateRecord(3))


def test_permissions_are_removed() -> None:
    image = image_of(KEPT)
    image.replay(RemoveAccessControlEntryRecord(ID))
    image.replay(RemoveDelegationTokenRecord("token"))
    assert not image.acls
    assert not image.tokens


def test_the_registration_knows_its_offset() -> None:
    image = MetadataImage()
    image.replay_batch([FeatureLevelRecord("metadata.version", 30), RegisterBrokerRecord(1)], 102)
    assert image.brokers[1].offset == 101
    image.replay_batch([BrokerRegistrationChangeRecord(1, fenced=-1)], 103)
    assert image.brokers[1].offset == 101


@pytest.mark.parametrize("topic", ["t", ""])
def test_clearing_the_elr_is_a_change_of_the_partition(topic: str) -> None:
    image = image_of(KEPT)
    image.replay(ClearElrRecord(topic))
    state = image.partition("t", 0)
    assert state is not None
    assert (state.eligible, state.last_known_eligible) == ((), ())
    assert (state.partition_epoch, state.leader_epoch) == (9, 7)
    image.replay(ClearElrRecord(topic))
    assert image.partition("t", 0) is state


def test_replicas_without_directories_are_those_of_an_older_release() -> None:
    image = image_of([TopicRecord("t", ID), PartitionRecord(0, ID, [1, 2], [1, 2], leader=1)])
    state = image.partition("t", 0)
    assert state is not None and state.directories == (MIGRATING_DIRECTORY,) * 2
    image.replay(PartitionChangeRecord(0, ID, replicas=[2, 3, 4]))
    state = image.partition("t", 0)
    assert state is not None and state.directories == (MIGRATING_DIRECTORY,) * 3


def test_a_transaction_takes_effect_at_its_end_or_never() -> None:
    transaction = OpenTransaction()
    first, second = TopicRecord("a", ID), TopicRecord("b", OTHER_ID)
    assert transaction.published([BeginTransactionRecord("x"), first]) == []
    assert is_open(transaction)
    assert transaction.published([second, EndTransactionRecord(), first]) == [first, second, first]
    assert not is_open(transaction)
    assert transaction.published([BeginTransactionRecord(), first]) == []
    assert transaction.published([AbortTransactionRecord("why"), second]) == [second]


def is_open(transaction: OpenTransaction) -> bool:
    return transaction.is_open
