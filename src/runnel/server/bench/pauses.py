"""The pauses of the brokers' event loops during a benchmark."""

from dataclasses import dataclass

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.model.configs import ResourceType
from runnel.model.pauses import SHOWN_AS, LoopPauses


@dataclass(slots=True)
class PauseReport:
    """Sampled pauses of an event loop."""

    p50_ms: float
    p99_ms: float
    max_ms: float


async def read_pauses(cluster: Cluster) -> dict[int, LoopPauses]:
    """The histogram of each broker that has one, which is every broker of this project."""
    found = {}
    await cluster.refresh([])
    for node_id in list(cluster.nodes):
        for setting in await Admin(cluster).settings(ResourceType.BROKER, str(node_id), keys=[SHOWN_AS]):
            if setting.name == SHOWN_AS and setting.value is not None:
                found[node_id] = LoopPauses.from_text(setting.value)
    return found


def pauses_between(before: dict[int, LoopPauses], after: dict[int, LoopPauses]) -> PauseReport | None:
    """What all brokers together saw in between; None if they do not measure."""
    parts = [after[node_id].since(before[node_id]) for node_id in after if node_id in before]
    if not parts:
        return None
    whole = LoopPauses(
        [sum(counts) for counts in zip(*(part.counts for part in parts), strict=True)],
        max(part.longest_us for part in parts),
    )
    return PauseReport(
        whole.percentile_us(0.5) / 1000, whole.percentile_us(0.99) / 1000, whole.longest_us / 1000
    )
