"""docs/FAILOVER.md: how long clients of a cluster wait when a node fails, written by a full run."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tools.crash.cluster.gaps import Gaps, percentile

PAGE = Path(__file__).resolve().parents[3] / "docs" / "FAILOVER.md"
PARTITIONS = ("full partition", "one-way partition", "bridge partition")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: which rounds it is about, and what they may take at most."""

    label: str
    kinds: tuple[str, ...]
    target: str | None = None
    p50_s: float | None = None
    p99_s: float | None = None

    def gaps(self, measured: Gaps) -> list[float]:
        return [gap for kind in self.kinds for gap in measured.of(kind, self.target)]

    @property
    def goal(self) -> str:
        parts = [f"p50 {self.p50_s} s" if self.p50_s else "", f"p99 {self.p99_s} s" if self.p99_s else ""]
        return ", ".join(part for part in parts if part) or "-"


ROWS = [
    Row("kill -9 of the leader of a partition", ("kill -9",), "leader", 0.7, 1.5),
    Row("kill -9 of the controller", ("kill -9",), "controller", 0.7, 1.5),
    Row("kill -9 of any node", ("kill -9",), None, 0.7, 1.5),
    Row("pause of 6 s", ("pause",), None, None, 2.5),
    Row("partition of 8 s: full, one-way, bridge", PARTITIONS, None, None, 2.5),
    Row("all nodes killed and restarted", ("all killed and restarted",), None, None, 5.0),
    Row("controlled stop", ("controlled stop",), None, None, 0.3),
    Row("coordinator with 100,000 offsets killed: commits", ("coordinator moved",), None, None, 2.0),
    Row("power cut of all nodes", ("power cut",)),
    Row("slow disk", ("slow disk",)),
    Row("clock jump", ("clock jump",)),
    Row("bit flip while a node is down", ("bit flip",)),
]

HEAD = (
    "# Failover\n\n"
    "The longest time between two acknowledged sends of any partition, in seconds. Three nodes with default "
    "settings, replication factor 3, `min.insync.replicas=2`; producers of librdkafka with acks=all and "
    "`socket.timeout.ms=1000`, so that they give up on a node that does not answer. Written by "
    "`make crash ONLY=cluster{arguments}`.\n"
)


def page(measured: Gaps, rounds: Counter[str], beside: Gaps | None) -> str:
    """The whole page; `beside` is what Apache Kafka took."""
    kafka = "" if beside is None else " Apache Kafka p50 | p99 | max |"
    lines = [
        HEAD.format(arguments="" if beside is None else " ARGS=--kafka"),
        f"| fault | rounds | goal | p50 | p99 | max |{kafka}",
        "|---|---|---|---|---|---|" + ("" if beside is None else "---|---|---|"),
    ]
    for row in ROWS:
        gaps = row.gaps(measured)
        if gaps:
            cells = [row.label, str(len(gaps)), row.goal, *figures(gaps)]
            if beside is not None:
                cells += figures(row.gaps(beside))
            lines.append(f"| {' | '.join(cells)} |")
    counted = ", ".join(f"{count} {kind}" for kind, count in sorted(rounds.items()))
    lines.append(
        f"\nOver all rounds ({counted}): no acknowledged record was lost, duplicated or reordered, no "
        "transaction was torn, no client was stuck."
    )
    return "\n".join(lines) + "\n"


def figures(gaps: list[float]) -> list[str]:
    """p50, p99 and the longest gap."""
    if not gaps:
        return ["-", "-", "-"]
    return [f"{figure:.2f}" for figure in (percentile(gaps, 0.5), percentile(gaps, 0.99), max(gaps))]


def exceeded(measured: Gaps) -> list[str]:
    """The goals that were missed; machines with other work miss some of them."""
    missed = []
    for row in ROWS:
        gaps = row.gaps(measured)
        for name, share, goal_s in (("p50", 0.5, row.p50_s), ("p99", 0.99, row.p99_s)):
            if gaps and goal_s is not None and percentile(gaps, share) > goal_s:
                missed.append(f"{row.label}: {name} {percentile(gaps, share):.2f} s, the goal is {goal_s} s")
    return missed
