"""Starting offsets are determined once, for all queries and all later runs of a pipeline."""

import json
from functools import partial
from pathlib import Path

import pytest

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.model.ids import TopicPartition
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.declared.starts import FILE, pinned_starts
from runnel.pipelines.errors import BadCheckpoint
from runnel.testing import Broker
from tests.pipelines.declared.shop import declared

WORDS = TopicPartition("words", 0)
PIPELINE = """
name: shop
sources:
  old: {topic: words, format: string}
  new: {topic: words, format: string, start: latest}
  since: {pattern: "wor.*", format: string, start: "2100-01-01"}
sinks:
  old: {from: old, console: true}
  new: {from: new, console: true}
  since: {from: since, console: true}
"""


async def delete_words_before(cluster: Cluster, offset: int) -> None:
    await Admin(cluster).delete_records({WORDS: offset})


def test_starting_offsets_are_kept(runnel: Broker, tmp_path: Path) -> None:
    pipeline = declared(tmp_path, PIPELINE, RUNNEL_BOOTSTRAP=runnel.bootstrap_servers)
    checkpoint = str(tmp_path / "checkpoint")
    with runnel.client() as client, BrokerView(runnel.bootstrap_servers) as broker:
        client.create_topic("words", partitions=2)
        client.send("words", b"one", partition=0)
        first = pinned_starts(pipeline, broker, checkpoint)
        client.send("words", b"two", partition=0)
        client.send("words", b"three", partition=1)
        assert pinned_starts(pipeline, broker, checkpoint) == first
        broker.add_partitions("words", 3)
        later = pinned_starts(pipeline, broker, checkpoint)
    # Nothing is kept for what begins at the beginning anyway.
    assert first == {"new": {"words": {"0": 1, "1": 0}}, "since": {"words": {"0": 1, "1": 0}}}
    # All of a partition that came later came after the start: -2 is its earliest record.
    assert later["new"] == {"words": {"0": 1, "1": 0, "2": -2}}


def test_a_start_that_was_deleted_is_the_first_available_record(runnel: Broker, tmp_path: Path) -> None:
    """Otherwise a sink that is added later would request deleted records."""
    pipeline = declared(tmp_path, PIPELINE, RUNNEL_BOOTSTRAP=runnel.bootstrap_servers)
    with runnel.client() as client, BrokerView(runnel.bootstrap_servers) as broker:
        client.create_topic("words", partitions=1)
        client.send_all("words", [(None, b"one"), (None, b"two")])
        assert pinned_starts(pipeline, broker, str(tmp_path))["new"] == {"words": {"0": 2}}
        client.send_all("words", [(None, b"three"), (None, b"four"), (None, b"five")])
        for first, start in ((1, 2), (4, 4)):
            broker.run(partial(delete_words_before, offset=first))
            assert pinned_starts(pipeline, broker, str(tmp_path))["new"] == {"words": {"0": start}}


@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_checkpoints_as_file_uris(
    runnel: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.chdir(tmp_path)
    pipeline = declared(tmp_path, PIPELINE, RUNNEL_BOOTSTRAP=runnel.bootstrap_servers)
    with runnel.client() as client, BrokerView(runnel.bootstrap_servers) as broker:
        client.create_topic("words", partitions=1)
        for value in (b"one", b"two"):
            starts = pinned_starts(pipeline, broker, f"{scheme}{tmp_path}/checkpoint")
            assert starts["new"] == {"words": {"0": 0}}
            client.send("words", value)
        assert pinned_starts(pipeline, broker, "s3://bucket/checkpoint") == {}
    assert (tmp_path / "checkpoint" / FILE).exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "pipeline.yaml"]


def test_dead_letter_topics_have_no_starting_offsets(runnel: Broker, tmp_path: Path) -> None:
    """The discovery of new topics while a query runs uses the same options."""
    pipeline = declared(tmp_path, PIPELINE, RUNNEL_BOOTSTRAP=runnel.bootstrap_servers)
    with BrokerView(runnel.bootstrap_servers) as broker:
        for topic in ("words", "words.dead-letters", "words.dead-letters.redriven"):
            broker.create_topic(topic, partitions=1)
        assert pinned_starts(pipeline, broker, str(tmp_path))["since"] == {"words": {"0": 0}}


def test_a_damaged_file_is_reported(runnel: Broker, tmp_path: Path) -> None:
    """Looking the offsets up again would skip the records in between."""
    pipeline = declared(tmp_path, PIPELINE, RUNNEL_BOOTSTRAP=runnel.bootstrap_servers)
    (tmp_path / FILE).write_text(json.dumps({"new": {}})[:-2])
    with BrokerView(runnel.bootstrap_servers) as broker, pytest.raises(BadCheckpoint, match=FILE):
        pinned_starts(pipeline, broker, str(tmp_path))
