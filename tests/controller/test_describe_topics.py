"""Pages of topics end, also where none of the topics exist."""

from runnel.controller.describe_topics import describe_topic_partitions
from runnel.controller.image import MetadataImage
from runnel.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest


def test_a_page_of_unknown_topics_ends() -> None:
    request = DescribeTopicPartitionsRequest([TopicRequest(f"t{number:02}") for number in range(25)], 100)
    seen: list[str | None] = []
    pages = 0
    while pages == 0 or request.cursor is not None:
        page = describe_topic_partitions(MetadataImage(), request, 10, 0)
        seen += [topic.name for topic in page.topics]
        request.cursor = page.next_cursor
        pages += 1
    assert seen == [topic.name for topic in request.topics]
    assert pages == 3
