"""The lag of groups as metrics, with the names of kafka_exporter and kafka-lag-exporter."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from runnel.observe.lag.lag import PartitionLag
from runnel.observe.lag.report import Evaluate, GroupLag
from runnel.observe.metrics import Family, Labels, Sample

SERIES_MAX = 5000
"""With more committed offsets than this, there are only series of groups and topics, none of partitions."""


class LagFamilies:
    """The families of one scrape."""

    def __init__(self, groups: Iterable[str], evaluate: Evaluate, position_count: int) -> None:
        self._ids = list(groups)
        self._evaluate = evaluate
        self._groups: list[GroupLag] = []
        self._by_topic: dict[tuple[str, str], int] = {}
        """The lag in records by group and topic."""
        self._committed: dict[tuple[str, str], int] = {}
        """The sum of committed offsets by group and topic."""
        self._has_partitions = position_count <= SERIES_MAX

    def families(self) -> Iterator[Family | None]:
        """All families; None where the work can be interrupted."""
        for group_id in self._ids:
            group = yield from self._evaluate(group_id)
            if group is not None:
                self._add(group)
            yield None
        if self._has_partitions:
            yield Family(
                "kafka_consumergroup_current_offset",
                "gauge",
                "Committed offset of a group in a partition.",
                self._by_partition("consumergroup", lambda lag: lag.committed),
            )
            yield Family(
                "kafka_consumergroup_lag",
                "gauge",
                "Records between the committed offset of a group and the end of a partition.",
                self._by_partition("consumergroup", lambda lag: lag.lag),
            )
            yield Family(
                "kafka_consumergroup_group_lag_seconds",
                "gauge",
                "Age of the first record of a partition that a group has not read, since its append.",
                self._by_partition("group", lambda lag: _seconds(lag.lag_ms)),
            )
        yield Family(
            "kafka_consumergroup_current_offset_sum",
            "gauge",
            "Committed offsets of a group, summed over the partitions of a topic.",
            _of_topics(self._committed),
        )
        yield Family(
            "kafka_consumergroup_lag_sum",
            "gauge",
            "Records between the committed offsets of a group and the end of a topic.",
            _of_topics(self._by_topic),
        )
        yield from self._of_groups()

    def _of_groups(self) -> Iterator[Family]:
        yield Family(
            "kafka_consumergroup_members",
            "gauge",
            "Members of a group.",
            self._by_group("consumergroup", lambda group: group.facts.members),
        )
        yield Family(
            "kafka_consumergroup_group_max_lag_seconds",
            "gauge",
            "Largest age of a record that a group has not read, of its partitions.",
            self._by_group("group", lambda group: _seconds(group.lag_ms)),
        )
        yield Family(
            "runnel_group_verdict",
            "gauge",
            "1 for the verdict on a group: ok, lagging, rewound, stalled, stopped or unknown.",
            self._verdicts(),
        )
        yield Family(
            "runnel_group_caught_up_seconds",
            "gauge",
            "Time until a group has caught up, by its pace; +Inf if it does not, none if that is unknown.",
            self._by_group("group", lambda group: group.forecast_seconds),
        )
        yield Family(
            "runnel_group_unknown_offsets",
            "gauge",
            "Committed offsets of a group whose lag in seconds is unknown.",
            self._by_group("group", lambda group: group.unknown),
        )

    def _add(self, group: GroupLag) -> None:
        for lag in group.partitions:
            name = (group.facts.id, lag.topic)
            self._committed[name] = self._committed.get(name, 0) + lag.committed
            if lag.lag is not None:
                self._by_topic[name] = self._by_topic.get(name, 0) + lag.lag
        # Not kept if there are too many to be shown.
        self._groups.append(group if self._has_partitions else replace(group, partitions=()))

    def _by_partition(self, label: str, value: Callable[[PartitionLag], float | None]) -> Iterator[Sample]:
        for group in self._groups:
            for lag in group.partitions:
                known = value(lag)
                if known is not None:
                    labels: Labels = (
                        (label, group.facts.id),
                        ("topic", lag.topic),
                        ("partition", str(lag.partition)),
                    )
                    yield labels, known

    def _by_group(self, label: str, value: Callable[[GroupLag], float | None]) -> Iterator[Sample]:
        for group in self._groups:
            known = value(group)
            if known is not None:
                yield ((label, group.facts.id),), known

    def _verdicts(self) -> Iterator[Sample]:
        for group in self._groups:
            yield (("group", group.facts.id), ("verdict", group.verdict.value)), 1


def _of_topics(sums: dict[tuple[str, str], int]) -> list[Sample]:
    return [
        ((("consumergroup", group_id), ("topic", topic)), records)
        for (group_id, topic), records in sums.items()
    ]


def _seconds(duration_ms: int | None) -> float | None:
    return None if duration_ms is None else duration_ms / 1000
