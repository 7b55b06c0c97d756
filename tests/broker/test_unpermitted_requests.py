"""Every API in every version, as clients that may do nothing: nothing is shown, and nothing changes."""

import asyncio
from typing import Any

from runnel.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from runnel.messages.registry import API_NAMES
from runnel.ports.service import CloseConnection, Reply
from runnel.schemas.metadata import MetadataRecord, NoOpRecord
from runnel.security.acl import Operation
from runnel.security.principal import ANONYMOUS
from tests.broker.authorized import SETTINGS, Caller, prepare
from tests.broker.requests import batch, produce_to
from tools.fuzz.samples import TOPIC, sample_frames

HIDDEN = "vault"
SECRETS = (HIDDEN.encode(), b"a secret record", b"123456789")
"""No request has them: a topic, a group, a principal and a user, a record, a config."""
CALLERS = {"PLAINTEXT": "guest", "SSL": ANONYMOUS.name, "CONTROLLER": "guest"}
NO_SUPER_USER = {**SETTINGS, "super.users": "User:root", "offsets.topic.num.partitions": "1"}


async def answer(caller: Caller, frame: bytes) -> bytes:
    """The response; empty if the connection is closed or nothing is answered."""
    data = memoryview(bytearray(frame))
    replies: list[Reply] = []
    try:
        caller.pipeline.serve(data, 4, len(data), len(data), caller.session, replies, 1)
    except CloseConnection:
        return b""
    finally:
        caller.pipeline.finish_turn()
    async with asyncio.timeout(20):
        while replies and not replies[0].is_filled:
            await asyncio.sleep(0.001)
    return b"".join(bytes(part) for reply in replies for part in reply.parts)  # type: ignore[arg-type]


async def populate(world: Any) -> None:
    acls, root = prepare(world), Caller(world, "root")
    configs = [CreatableTopicConfig("retention.ms", "123456789")]
    topics = [CreatableTopic(TOPIC, 1, 1), CreatableTopic(HIDDEN, 1, 1, configs=configs)]
    await root.ask(CreateTopicsRequest(topics), 7)
    await acls.add(HIDDEN, Operation.READ, to=f"User:{HIDDEN}")
    await root.ask(FindCoordinatorRequest(key=HIDDEN), 1)
    for topic in (TOPIC, HIDDEN):
        await root.ask(produce_to(topic, (0, batch(b"a secret record"))), 9)
        offsets = OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, 1)])
        for group in (TOPIC, HIDDEN):
            await root.ask(OffsetCommitRequest(group, topics=[offsets]), 9)


def stored(world: Any) -> dict[str, int]:
    """The end of every log."""
    return {
        f"{name}-{index}": partition.log.end_offset
        for (name, index), partition in world.broker.partition_at.items()
    }


def test_nothing_is_shown_and_nothing_changes(tell, monkeypatch) -> None:
    async def scenario(world: Any) -> None:
        await populate(world)
        frames = list(dict.fromkeys(sample_frames(world.topic_id(TOPIC), is_harmless=False)))
        assert {int.from_bytes(frame[4:6], "big") for frame in frames} == API_NAMES.keys()
        before = stored(world)
        decided: list[MetadataRecord] = []
        replayed = world.broker.gates.authorizer.replayed

        def recorded(records: list[MetadataRecord]) -> None:
            decided.extend(record for record in records if not isinstance(record, NoOpRecord))
            replayed(records)

        # It is passed all records of the metadata log.
        monkeypatch.setattr(world.broker.gates.authorizer, "replayed", recorded)
        answered = 0
        for listener, name in CALLERS.items():
            for frame in frames:
                caller = Caller(world, name, listener)
                response = await answer(caller, frame)
                answered += bool(response)
                what = (listener, frame[4:8].hex())
                assert not any(secret in response for secret in SECRETS), what
                assert not decided, (what, decided)
        assert answered > len(frames)
        assert stored(world) == before
        # Proof that a change would have been noticed.
        await Caller(world, "root").ask(CreateTopicsRequest([CreatableTopic("another", 1, 1)]), 7)
        assert decided
        assert stored(world) != before

    tell(scenario, NO_SUPER_USER)
