"""Checks all partitions in Spark: summaries are shuffled by partition and sorted in log order."""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.pipelines.audit.batches import summaries_of_arrow
from runnel.pipelines.audit.checker import PartitionChecker, PartitionInfo, PartitionResult
from runnel.pipelines.audit.counts import Counts, OverTime
from runnel.pipelines.audit.findings import Finding, Kind, Level
from runnel.pipelines.report.writing import plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RESULT = pa.schema([("result", pa.string())])


def check_partitions(
    summaries: "DataFrame", info: Mapping[tuple[str, int], PartitionInfo]
) -> list[PartitionResult]:
    """A result for each partition, including those without batches."""
    ordered = summaries.repartition("topic", "partition").sortWithinPartitions(
        "topic", "partition", "range_start", "position"
    )

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for result in check_sorted(batches, info):
            yield pa.RecordBatch.from_pydict({"result": [json.dumps(plain(result))]}, schema=_RESULT)

    rows = ordered.mapInArrow(check, "result string").collect()
    results = {(result.topic, result.partition): result for result in map(_result, (row[0] for row in rows))}
    for key, known in info.items():
        if key not in results:
            results[key] = PartitionChecker(known).finish()
    return [results[key] for key in sorted(results)]


def check_sorted(
    batches: Iterator[pa.RecordBatch], info: Mapping[tuple[str, int], PartitionInfo]
) -> Iterator[PartitionResult]:
    """The results of partitions whose summaries are sorted by partition."""
    checker, key = None, None
    for batch in batches:
        for summary in summaries_of_arrow(batch):
            if (summary.topic, summary.partition) != key:
                if checker is not None:
                    yield checker.finish()
                key = summary.topic, summary.partition
                checker = PartitionChecker(info[key])
            assert checker is not None
            checker.add(summary)
    if checker is not None:
        yield checker.finish()


def _result(text: str) -> PartitionResult:
    fields: dict[str, Any] = json.loads(text)
    over_time = fields.pop("over_time")
    buckets = {int(start): tuple(entry) for start, entry in over_time["buckets"].items()}
    findings = [
        Finding(Level(entry.pop("level")), Kind(entry.pop("kind")), **entry)
        for entry in fields.pop("findings")
    ]
    return PartitionResult(
        **{**fields, "counts": Counts(**fields["counts"])},
        over_time=OverTime(over_time["step_ms"], buckets),
        findings=findings,
    )
