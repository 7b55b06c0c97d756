"""The first and the last offset of a leader's log, for a follower that is outside of it."""

import asyncio

from runnel.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import TopicPartition
from runnel.ports.peers import Channel

LATEST = -1
EARLIEST = -2
TIMEOUT_MS = 10_000


async def leader_offsets(channel: Channel, node_id: int, name: TopicPartition, epoch: int) -> tuple[int, int]:
    """(log start, log end) of the leader in this epoch. Raises ApiError and PeerFailed."""

    async def ask(timestamp: int) -> int:
        asked = ListOffsetsPartition(name.partition, current_leader_epoch=epoch, timestamp=timestamp)
        request = ListOffsetsRequest(node_id, topics=[ListOffsetsTopic(name.topic, [asked])])
        response = await channel.send(request, timeout_ms=TIMEOUT_MS)
        (topic,) = response.topics
        (result,) = topic.partitions
        if result.error_code:
            raise ApiError(ErrorCode.from_code(result.error_code), f"the offsets of {name} are not known")
        offset: int = result.offset
        return offset

    start, end = await asyncio.gather(ask(EARLIEST), ask(LATEST))
    return start, end
