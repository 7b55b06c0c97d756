"""Large changes of metadata: atomic in the log, encoded in steps, decided again after others."""

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from runnel.broker.runtime import active_controller
from runnel.broker.runtime.active_controller import ActiveController
from runnel.controller.topic_changes import Randomness, decide_create_topics
from runnel.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.broker.world import BrokerWorld


@pytest.mark.parametrize("attempts_max", [3, 1, 0])
def test_a_large_change_is_encoded_in_steps_while_others_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempts_max: int
) -> None:
    monkeypatch.setattr(active_controller, "RECORDS_PER_STEP", 10)
    monkeypatch.setattr(active_controller, "ATTEMPTS_MAX", attempts_max)
    sizes: list[int] = []
    decided: list[str] = []
    encode = ActiveController._encode

    def counted(self: ActiveController, records: Any) -> Any:
        sizes.append(len(records))
        return encode(self, records)

    monkeypatch.setattr(ActiveController, "_encode", counted)
    ids = (number.to_bytes(16, "big") for number in count(1))

    async def run() -> None:
        async with BrokerWorld(tmp_path) as world:

            def creating(name: str, partitions: int) -> Callable[[Any], Any]:
                request = CreateTopicsRequest([CreatableTopic(name, partitions, 1)])

                def decide(image: Any) -> Any:
                    decided.append(name)
                    return decide_create_topics(image, world.settings, request, Randomness(ids))

                return decide

            metadata = world.broker.metadata
            large = asyncio.ensure_future(metadata.change(creating("large", 50)))
            await asyncio.sleep(0)
            # One with the same name: whichever is written first wins.
            small, same = await asyncio.gather(
                metadata.change(creating("small", 1)), metadata.change(creating("large", 2))
            )
            response = await large
            topics = metadata.image.topics
            codes = [each.topics[0].error_code for each in (response, small, same)]
            assert (codes[1], sorted(codes)) == (0, [0, 0, 36]), "one of both topics exists"
            winner = 50 if codes[0] == 0 else 2
            assert (len(topics["large"].partitions), len(topics["small"].partitions)) == (winner, 1)
            if attempts_max:
                assert winner == 2 and decided.count("large") == 3, "it was decided again"
                assert max(sizes) <= 10

    asyncio.run(run())
