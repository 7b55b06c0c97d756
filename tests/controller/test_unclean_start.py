"""Elections after an unclean shutdown: every partition led here that was not closed cleanly."""

from runnel.controller.image import MetadataImage
from runnel.controller.unclean_start import closed_uncleanly, decide_reelections
from runnel.model.ids import TopicPartition
from runnel.schemas.metadata import PartitionRecord, RemoveTopicRecord, TopicRecord


def test_every_partition_that_the_node_leads_gets_a_new_epoch() -> None:
    image = MetadataImage()
    for number in range(11):
        topic_id = (number + 1).to_bytes(16, "big")
        image.replay(TopicRecord(f"topic-{number}", topic_id))
        for index in range(100):
            # Of each topic, one partition is led by another node.
            leader = 2 if index == 7 else 1
            image.replay(
                PartitionRecord(index, topic_id, [1, 2], [1, 2], [], [], leader, leader_epoch=number)
            )
    names = list(closed_uncleanly(image, 1, lambda partition: partition.partition == 5))
    assert len(names) == 11 * 98
    image.replay_batch(decide_reelections(names, 1, image).records, 0)
    for number in range(11):
        states = image.topics[f"topic-{number}"].partitions
        others = [state for index, state in enumerate(states) if state.leader == 1 and index != 5]
        assert {state.leader_epoch for state in others} == {number + 1}
        assert states[5].leader_epoch == number
        assert (states[7].leader, states[7].leader_epoch) == (2, number)


def test_a_topic_that_was_deleted_meanwhile_is_not_elected() -> None:
    image = MetadataImage()
    image.replay(TopicRecord("topic", bytes(16)))
    image.replay(PartitionRecord(0, bytes(16), [1], [1], [], [], 1, leader_epoch=3))
    names = list(closed_uncleanly(image, 1, lambda _: False))
    assert names == [TopicPartition("topic", 0)]
    image.replay(RemoveTopicRecord(bytes(16)))
    assert decide_reelections(names, 1, image).records == []
