"""Elections after an unclean shutdown: every partition led here that was not closed cleanly, in steps."""

from runnel.controller.image import MetadataImage
from runnel.controller.unclean_start import RECORDS_PER_CHANGE, elections_after_unclean_start
from runnel.schemas.metadata import PartitionRecord, TopicRecord


def test_every_partition_that_the_node_leads_gets_a_new_epoch() -> None:
    image = MetadataImage()
    for number in range(11):
        topic_id = (number + 1).to_bytes(16, "big")
        image.replay(TopicRecord(f"topic-{number}", topic_id))
        for index in range(1000):
            # Of each topic, one partition is led by another node.
            leader = 2 if index == 7 else 1
            image.replay(
                PartitionRecord(index, topic_id, [1, 2], [1, 2], [], [], leader, leader_epoch=number)
            )
    changes = list(elections_after_unclean_start(image, 1, lambda partition: partition.partition == 5))
    assert [len(change) for change in changes] == [RECORDS_PER_CHANGE] * 10 + [978]
    for change in changes:
        image.replay_batch(change, 0)
    for number in range(11):
        states = image.topics[f"topic-{number}"].partitions
        others = [state for index, state in enumerate(states) if state.leader == 1 and index != 5]
        assert {state.leader_epoch for state in others} == {number + 1}
        assert states[5].leader_epoch == number
        assert (states[7].leader, states[7].leader_epoch) == (2, number)
