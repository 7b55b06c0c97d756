"""A pipeline whose commit marker expired while it was stopped resumes with an option."""

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runnel.client.cluster import Cluster
from runnel.client.groups import Groups
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.declared.job import DeclaredOptions, run
from runnel.pipelines.errors import PipelineError
from runnel.pipelines.progress import Progress
from runnel.pipelines.sink.options import PREFIX
from tests.pipelines.declared.shop import declared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.testing import Broker

LOGS = """
name: logs
sources:
  logs: {pattern: "logs-.*", format: string}
sinks:
  copies: {from: logs, topic: copies}
"""
# No UTF-8, larger than topics take by default, and not to be compressed.
LARGE = b"\xff" + random.Random(7).randbytes(2_000_000)
SETTINGS = {"max.message.bytes": "3000000"}

pytestmark = pytest.mark.timeout(900)


def forget_notes(broker: BrokerView) -> int:
    """Delete the commit markers, as after `offsets.retention.minutes`; returns their number."""
    groups = [group for group in broker.groups() if group.startswith(PREFIX)]

    async def forget(cluster: Cluster) -> None:
        for group in groups:
            await Groups(cluster).delete(group)

    broker.run(forget)
    return len(groups)


def test_a_pipeline_resumes_after_its_commit_marker_has_expired(
    spark: "SparkSession", runnel: "Broker", tmp_path: Path
) -> None:
    pipeline = declared(tmp_path, LOGS, RUNNEL_BOOTSTRAP=runnel.bootstrap_servers)
    with runnel.client() as client, BrokerView(runnel.bootstrap_servers) as broker:
        client.create_topic("logs-web", partitions=1, settings=SETTINGS)
        client.send_all("logs-web", [(None, b"one"), (None, LARGE)])
        run(spark, DeclaredOptions(pipeline, once=True), Progress())
        assert forget_notes(broker) == 2
        client.send_all("logs-web", [(None, b"two"), (None, b"\xfe")])
        with pytest.raises(
            PipelineError, match=r"has no commit marker .* --in-doubt write to .* --in-doubt skip if"
        ):
            run(spark, DeclaredOptions(pipeline, once=True), Progress())
        run(spark, DeclaredOptions(pipeline, once=True, in_doubt="write"), Progress())
        copies = client.read("copies", committed_only=True)
        dead = client.read("logs-web.dead-letters", committed_only=True)
        topics = client.topics()
    assert sorted(json.loads(copy.value or b"")["value"] for copy in copies) == ["one", "two"]
    assert [letter.value for letter in dead] == [LARGE, b"\xfe"]
    # The dead letters match the pattern of the source, and are not read by it.
    assert sorted(topics) == ["copies", "logs-web", "logs-web.dead-letters"]
