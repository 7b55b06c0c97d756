"""Incremental fetch sessions (KIP-227) and their limit."""

import pytest

from runnel.broker.runtime.fetch_sessions import EVICTION_MS_MIN, FetchSessions
from runnel.messages.fetch import FetchRequest
from runnel.model.errors import ApiError, ErrorCode
from runnel.server.shells import SystemEntropy
from tests.broker.requests import batch, fetch_from, only, produce_to, values


def partitions_of(response) -> list[int]:
    return [p.partition_index for topic in response.responses for p in topic.partitions]


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_only_changes_are_returned(tell, version):
    async def scenario(world) -> None:
        await world.create("events", 3)
        client = await world.connect()
        topic = world.topic_id("events") if version >= 13 else "events"
        opened = await client.ask(fetch_from(topic, (0, 0), (1, 0), (2, 0), session_epoch=0), version)
        assert opened.session_id > 0 and partitions_of(opened) == [0, 1, 2]
        session = {"session_id": opened.session_id}
        quiet = await client.ask(fetch_from(topic, session_epoch=1, **session), version)
        assert (quiet.error_code, quiet.session_id, quiet.responses) == (0, opened.session_id, [])
        await client.ask(produce_to("events", (1, batch(b"a"))), 9)
        news = await client.ask(fetch_from(topic, session_epoch=2, **session), version)
        assert partitions_of(news) == [1] and values(only(news).records) == [b"a"]
        # A request contains only changed partitions.
        moved = await client.ask(fetch_from(topic, (1, 1), session_epoch=3, **session), version)
        assert moved.responses == []

    tell(scenario)


def test_partitions_can_be_added_and_removed(tell):
    async def scenario(world) -> None:
        await world.create("events", 3)
        client = await world.connect()
        opened = await client.ask(fetch_from("events", (0, 0), session_epoch=0), 12)
        session = {"session_id": opened.session_id}
        added = await client.ask(fetch_from("events", (2, 0), session_epoch=1, **session), 12)
        assert partitions_of(added) == [2]
        await client.ask(produce_to("events", (0, batch(b"a")), (2, batch(b"b"))), 9)
        forgot = await client.ask(fetch_from("events", session_epoch=2, forget=[0], **session), 12)
        assert partitions_of(forgot) == [2]
        # Removing the last partition ends the session.
        ended = await client.ask(fetch_from("events", session_epoch=3, forget=[2], **session), 12)
        assert (ended.error_code, ended.session_id, ended.responses) == (0, 0, [])
        assert len(world.broker.fetch_sessions) == 0

    tell(scenario)


def test_wrong_epochs_and_unknown_sessions(tell):
    async def scenario(world) -> None:
        await world.create("events")
        client = await world.connect()
        opened = await client.ask(fetch_from("events", (0, 0), session_epoch=0), 12)
        known = opened.session_id
        for session_id, epoch, version, error in (
            (known + 1, 1, 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            (known, 2, 12, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
            (known, 1, 13, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
        ):
            request = fetch_from(
                b"" if version == 13 else "events", session_id=session_id, session_epoch=epoch
            )
            response = await client.ask(request, version)
            assert (response.error_code, response.responses) == (error.code, [])
        # A full fetch with the session id ends it.
        await client.ask(fetch_from("events", (0, 0), session_id=known, session_epoch=-1), 12)
        gone = await client.ask(fetch_from("events", session_id=known, session_epoch=1), 12)
        assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND.code

    tell(scenario)


def test_error_is_returned_until_it_is_resolved(tell):
    async def scenario(world) -> None:
        await world.create("events")
        client = await world.connect()
        opened = await client.ask(fetch_from("events", (0, 5), (1, 0), session_epoch=0), 12)
        for epoch in (1, 2):
            again = await client.ask(
                fetch_from("events", session_id=opened.session_id, session_epoch=epoch), 12
            )
            assert [p.error_code for p in again.responses[0].partitions] == [
                ErrorCode.OFFSET_OUT_OF_RANGE.code,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code,
            ]

    tell(scenario)


def test_partitions_that_returned_records_move_to_the_end(tell):
    async def scenario(world) -> None:
        await world.create("events", 2)
        client = await world.connect()
        big = batch(bytes(3000))
        await client.ask(produce_to("events", (0, big), (1, big)), 9)
        opened = await client.ask(fetch_from("events", (0, 0), (1, 0), session_epoch=0, max_bytes=3500), 12)
        assert [len(p.records) > 0 for p in opened.responses[0].partitions] == [True, False]
        request = fetch_from("events", session_id=opened.session_id, session_epoch=1, max_bytes=3500)
        following = await client.ask(request, 12)
        assert partitions_of(following) == [1], "partition 0 had its turn"

    tell(scenario)


class _Clock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    def seconds(self) -> float:
        return self.ms / 1000


def _open(sessions: FetchSessions) -> int:
    return sessions.plan(fetch_from("events", (0, 0), session_epoch=0), 12).session_id


def _use(sessions: FetchSessions, session_id: int, epoch: int) -> None:
    sessions.plan(FetchRequest(session_id=session_id, session_epoch=epoch), 12)


def test_only_idle_sessions_are_evicted():
    clock = _Clock()
    sessions = FetchSessions(2, clock, SystemEntropy())
    first, second = _open(sessions), _open(sessions)
    assert first and second and first != second
    assert _open(sessions) == 0, "both were just used"
    clock.ms += EVICTION_MS_MIN
    _use(sessions, first, 1)
    third = _open(sessions)
    assert third and len(sessions) == 2
    _use(sessions, first, 2)
    with pytest.raises(ApiError):
        _use(sessions, second, 1)
