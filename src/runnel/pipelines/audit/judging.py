"""All partitions before their judges, in Spark: facts come together by partition, in the log's order."""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.pipelines.audit.batches import facts_of_arrow
from runnel.pipelines.audit.counts import Counts, OverTime
from runnel.pipelines.audit.findings import Finding, Kind, Level
from runnel.pipelines.audit.judge import PartitionJudge, PartitionVerdict, Terms
from runnel.pipelines.report.writing import plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_VERDICT = pa.schema([("verdict", pa.string())])


def judge_all(facts: "DataFrame", terms: Mapping[tuple[str, int], Terms]) -> list[PartitionVerdict]:
    """A verdict for each partition, also for those of which no batch was found."""
    ordered = facts.repartition("topic", "partition").sortWithinPartitions(
        "topic", "partition", "range_start", "position"
    )

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for verdict in judged(batches, terms):
            yield pa.RecordBatch.from_pydict({"verdict": [json.dumps(plain(verdict))]}, schema=_VERDICT)

    rows = ordered.mapInArrow(judge, "verdict string").collect()
    verdicts = {
        (verdict.topic, verdict.partition): verdict for verdict in map(_verdict, (row[0] for row in rows))
    }
    for key, known in terms.items():
        if key not in verdicts:
            verdicts[key] = PartitionJudge(known).ended()
    return [verdicts[key] for key in sorted(verdicts)]


def judged(
    batches: Iterator[pa.RecordBatch], terms: Mapping[tuple[str, int], Terms]
) -> Iterator[PartitionVerdict]:
    """The verdicts about partitions whose facts come one behind the other."""
    judge, key = None, None
    for batch in batches:
        for fact in facts_of_arrow(batch):
            if (fact.topic, fact.partition) != key:
                if judge is not None:
                    yield judge.ended()
                key = fact.topic, fact.partition
                judge = PartitionJudge(terms[key])
            assert judge is not None
            judge.saw(fact)
    if judge is not None:
        yield judge.ended()


def _verdict(text: str) -> PartitionVerdict:
    said: dict[str, Any] = json.loads(text)
    over_time = said.pop("over_time")
    buckets = {int(start): tuple(entry) for start, entry in over_time["buckets"].items()}
    findings = [
        Finding(Level(entry.pop("level")), Kind(entry.pop("kind")), **entry) for entry in said.pop("findings")
    ]
    return PartitionVerdict(
        **{**said, "counts": Counts(**said["counts"])},
        over_time=OverTime(over_time["step_ms"], buckets),
        findings=findings,
    )
