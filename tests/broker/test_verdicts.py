"""What follows from the decision of the authorizer: which requests become templates, and are exempt."""

from typing import Any

import pytest

from runnel.broker.runtime.gates import Gates
from runnel.messages.fetch import FetchRequest, ForgottenTopic
from runnel.messages.produce import ProduceRequest
from runnel.ports.gates import Permission
from runnel.ports.service import Session
from tests.broker.gated import Gated, Recorder
from tests.broker.requests import batch, fetch_from, produce_to


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
