"""Commands of the transcripts: events of one partition, as its leader sees them."""

from runnel.model.errors import ApiError
from runnel.replica.leader import IsrProposal, LeaderReplica


class Commands:
    """A leader, node 1, whose high watermark and proposals are printed when they change."""

    def __init__(self) -> None:
        self.active = {1: 100, 2: 200, 3: 300}
        self.sent: IsrProposal | None = None
        self.lead({})

    def lead(self, options: dict[str, str]) -> None:
        replicas = nodes(options.get("replicas", "1,2,3"))
        self.core = LeaderReplica(
            1,
            int(options.get("epoch", 5)),
            replicas,
            nodes(options["isr"]) if "isr" in options else replicas,
            partition_epoch=int(options.get("partition_epoch", 7)),
            isr_min=int(options.get("min", 1)),
            epoch_start=int(options.get("start", 0)),
            active=self.active,
            now_ms=int(options.get("at", 0)),
            silence_max_ms=int(options.get("silence", 30_000)),
            high_watermark=int(options.get("hw", 0)),
        )
        self.core.stored(int(options.get("start", 0)))

    def play(self, line: str) -> list[str]:
        verb, *words = line.split()
        options = dict(word.split("=") for word in words if "=" in word)
        values = [word for word in words if "=" not in word]
        known, proposed = self.core.high_watermark, self.core.proposed
        try:
            getattr(self, f"_{verb}")(values, options)
        except ApiError as refusal:
            return [f"refused {refusal.error.name}"]
        out = []
        if self.core.proposed is not None and self.core.proposed is not proposed:
            self.sent = self.core.proposed
            isr = ",".join(f"{node}@{epoch}" for node, epoch in self.sent.isr)
            out.append(f"propose {isr} at partition epoch {self.sent.partition_epoch}")
        if self.core.high_watermark != known or verb == "lead":
            out.append(f"hw {self.core.high_watermark}")
        return out

    def _lead(self, values: list[str], options: dict[str, str]) -> None:
        self.lead(options)

    def _append(self, values: list[str], options: dict[str, str]) -> None:
        self.core.stored(int(values[0]))

    def _fetch(self, values: list[str], options: dict[str, str]) -> None:
        node, offset, now_ms = int(values[0]), int(values[1]), int(options["at"])
        epoch = int(options.get("broker_epoch", node * 100))
        self.core.fetched(node, offset, now_ms, broker_epoch=epoch)
        if node not in self.core.maximal_isr:
            self.core.propose(now_ms)

    def _tick(self, values: list[str], options: dict[str, str]) -> None:
        self.core.ticked(int(options["at"]))
        self.core.propose(int(options["at"]))

    def _accepted(self, values: list[str], options: dict[str, str]) -> None:
        assert self.sent is not None
        isr = nodes(values[0]) if values else self.sent.nodes
        self.core.accepted(self.sent, isr, int(options.get("partition_epoch", self.sent.partition_epoch + 1)))

    def _refused(self, values: list[str], options: dict[str, str]) -> None:
        assert self.sent is not None
        self.core.refused(self.sent, int(options["at"]))

    def _metadata(self, values: list[str], options: dict[str, str]) -> None:
        replicas = nodes(options.get("replicas", "1,2,3"))
        self.core.changed(replicas, nodes(options["isr"]), int(options["partition_epoch"]))

    def _fence(self, values: list[str], options: dict[str, str]) -> None:
        del self.active[int(values[0])]

    def _register(self, values: list[str], options: dict[str, str]) -> None:
        self.active[int(values[0])] = int(options["broker_epoch"])

    def _check(self, values: list[str], options: dict[str, str]) -> None:
        self.core.check_in_sync()


def nodes(text: str) -> frozenset[int]:
    return frozenset(map(int, text.split(",")))
