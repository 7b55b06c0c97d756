"""What follows from the decision of the authorizer: templates, exemptions, and for how long a fetch waits."""

from collections.abc import Iterable
from typing import Any

import pytest

from runnel.broker.runtime.fetch_template import FetchTemplate
from runnel.broker.runtime.gates import Gates
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.broker.runtime.waiting import LongPoll
from runnel.messages.fetch import FetchRequest, ForgottenTopic
from runnel.messages.produce import ProduceRequest
from runnel.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
from runnel.model.limits import FETCH_WAIT_MS_MAX
from runnel.ports.gates import Permission
from runnel.ports.service import Session
from tests.broker.gated import Gated, Recorder
from tests.broker.requests import batch, fetch_from, produce_to


class Exemptions(Recorder):
    """Quotas that note which requests are exempt."""

    def throttle_ms(self, session: Session, api_key: int, request_bytes: int, *, is_exempt: bool) -> int:
        self.met.append("exempt" if is_exempt else "charged")
        return 0


def follower_fetch() -> FetchRequest:
    request = fetch_from("events", (0, 0))
    request.replica_id = 2
    return request


@pytest.mark.parametrize("denies", [False, True])
@pytest.mark.parametrize(
    ("asked", "version"),
    [(follower_fetch(), 12), (WriteTxnMarkersRequest([WritableTxnMarker(producer_id=1)]), 1)],
)
def test_only_brokers_are_exempt_from_the_request_quota(
    tell, monkeypatch, denies: bool, asked: FetchRequest | WriteTxnMarkersRequest, version: int
) -> None:
    async def scenario(world: Any) -> None:
        await world.create("events")
        recorder = Exemptions(denies=denies, throttle_ms=1)
        gates = Gated(world, monkeypatch, recorder)
        gates.replace(asked.api_key)
        gates.serve((asked, version))
        expected = ["charged"] if denies else ["exempt", "handle"]
        assert [step for step in recorder.met if step in ("exempt", "charged", "handle")] == expected
        world.broker.gates = Gates()

    tell(scenario)


class ChangedMeanwhile(Recorder):
    """An authorizer that changes while it decides."""

    def allows(self, session: Session, permission: Permission) -> bool:
        self.version += 1
        return True


@pytest.mark.parametrize(
    ("repeated", "version"), [(produce_to("events", (0, batch(b"a"))), 9), (fetch_from("events", (0, 0)), 12)]
)
def test_a_template_has_the_version_from_before_authorization(
    tell, monkeypatch, repeated: ProduceRequest | FetchRequest, version: int
) -> None:
    async def scenario(world: Any) -> None:
        await world.create("events")
        gates = Gated(world, monkeypatch, ChangedMeanwhile(denies=True))
        gates.serve((repeated, version))
        assert gates.session.template is not None
        assert gates.session.template_version == 1
        world.broker.gates = Gates()

    tell(scenario)


def test_a_fetch_that_forgets_topics_is_no_template(tell, monkeypatch) -> None:
    async def scenario(world: Any) -> None:
        await world.create("events")
        gates = Gated(world, monkeypatch, Recorder())
        request = fetch_from("events", (0, 0))
        gates.serve((request, 12))
        assert gates.session.template is not None
        request.forgotten_topics_data = [ForgottenTopic("events", partitions=[1])]
        gates.serve((request, 12))
        assert gates.session.template is None
        world.broker.gates = Gates()

    tell(scenario)


def test_a_fetch_waits_for_a_bounded_time(tell, monkeypatch) -> None:
    """Permissions are not checked again while it waits."""
    waits: list[int] = []
    start = LongPoll.start

    def recorded(poll: LongPoll[Any], partitions: Iterable[ReplicatedLog], wait_ms: int) -> None:
        waits.append(wait_ms)
        start(poll, partitions, wait_ms)

    monkeypatch.setattr(LongPoll, "start", recorded)

    async def scenario(world: Any) -> None:
        await world.create("events")
        gates = Gated(world, monkeypatch, Recorder())
        for _ in range(2):
            gates.serve((fetch_from("events", (0, 0), wait_ms=2**31 - 1), 12))
        assert isinstance(gates.session.template, FetchTemplate)
        world.broker.waiting.expire_all()
        world.broker.gates = Gates()

    tell(scenario)
    assert len(waits) == 2
    assert max(waits) <= FETCH_WAIT_MS_MAX
