"""What the placement of many replicas costs."""

from typing import Any

import pytest

from runnel.controller import placement
from runnel.controller.image import MetadataImage
from runnel.controller.placement import assign_replicas
from tests.controller.commands import _registration


class Counted(list[Any]):
    """A list that counts how often its elements are looked at."""

    looked_at = 0

    def __getitem__(self, index: Any) -> Any:
        Counted.looked_at += 1
        return super().__getitem__(index)


def cluster(brokers: int) -> MetadataImage:
    image = MetadataImage()
    for node_id in range(1, brokers + 1):
        image.replay_batch([_registration(node_id, f"rack{node_id % 4}")], node_id)
    return image


@pytest.mark.parametrize("brokers", [8, 100])
def test_a_replica_is_placed_without_looking_at_all_brokers(
    monkeypatch: pytest.MonkeyPatch, brokers: int
) -> None:
    interleaved = placement._interleaved
    monkeypatch.setattr(placement, "_interleaved", lambda found: Counted(interleaved(found)))
    Counted.looked_at = 0
    states = assign_replicas(cluster(brokers), 1_000, 3, 0)
    assert Counted.looked_at <= 1_000 * 3 * 3
    leaders = [state.leader for state in states]
    counts = {leader: leaders.count(leader) for leader in leaders}
    assert len(counts) == brokers and max(counts.values()) - min(counts.values()) <= 1
