"""What ends is freed by its reference count: what is in a cycle would stay for as long as the process runs.

`server/process.py` excludes all that survived a collection from those that follow.
"""

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from runnel.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from runnel.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.broker import group_calls, txn_calls
from tests.broker.group_calls import commit_request
from tests.broker.requests import batch, fetch_from, produce_to


def cyclic_garbage() -> Counter[str]:
    """Classes of Runnel of which objects were in cycles that nothing refers to."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        kinds = (type(found) for found in gc.garbage)
        return Counter(kind.__qualname__ for kind in kinds if kind.__module__.startswith("runnel."))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


async def use(world: Any, topic: str) -> None:
    """Create a topic, use it as clients do all the time, and delete it."""
    await world.create(topic, 3)
    client = await world.connect()
    for _ in range(3):
        await client.ask(produce_to(topic, (0, batch(b"a"))), 9)
        await client.ask(fetch_from(topic, (0, 0)), 12)
    await client.ask(commit_request({0: 1}, group=topic), 8)
    # Closed while a fetch waits.
    client.send(fetch_from(topic, (1, 0), wait_ms=60_000), 12)
    await client.writer.drain()
    await client.close()
    other = await world.connect()
    await other.ask(DeleteTopicsRequest(topics=[DeleteTopicState(topic)]), 6)
    await other.close()
    await asyncio.sleep(0.2)


async def collected(use_once: Callable[[int], Awaitable[None]]) -> Counter[str]:
    """What one use leaves in cycles, after another one that created what stays."""
    await use_once(1)
    gc.collect()
    gc.disable()
    try:
        await use_once(2)
        return cyclic_garbage()
    finally:
        gc.enable()


def test_closed_connections_and_removed_logs_are_not_in_cycles(tell) -> None:
    async def story(world: Any) -> None:
        assert await collected(lambda number: use(world, f"topic-{number}")) == {}

    tell(story)


def test_members_that_left_and_transactions_that_ended_are_not_in_cycles(tmp_path) -> None:
    async def scenario(world: Any, _: Any) -> None:
        async def member(number: int) -> None:
            client = await world.connect()
            joined = await group_calls.join(client)
            await client.ask(group_calls.sync_request(joined, {joined.member_id: b"work"}), 5)
            await client.ask(commit_request({0: 1}), 8)
            await client.ask(LeaveGroupRequest("g", members=[MemberIdentity(joined.member_id)]), 5)
            who = await txn_calls.begin(client, f"x-{number}")
            await txn_calls.write(client, f"x-{number}", who, b"a")
            await txn_calls.end(client, f"x-{number}", who)
            await client.close()
            await asyncio.sleep(0.2)

        assert await collected(member) == {}

    txn_calls.play(tmp_path, scenario, group_initial_rebalance_delay_ms="0")
