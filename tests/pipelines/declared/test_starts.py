"""Where sources begin is decided once, for all queries and all later starts of a pipeline."""

import json
from pathlib import Path

import pytest

from runnel.pipelines.broker import BrokerView
from runnel.pipelines.declared.starts import FILE, pinned_starts
from runnel.pipelines.errors import BadCheckpoint
from runnel.testing import Broker
from tests.pipelines.declared.shop import declared

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


def test_a_start_stays_where_it_was(runnel: Broker, tmp_path: Path) -> None:
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


def test_a_file_that_is_damaged_is_not_passed_over(runnel: Broker, tmp_path: Path) -> None:
    """To look the start up anew would leave out whatever came in between."""
    pipeline = declared(tmp_path, PIPELINE, RUNNEL_BOOTSTRAP=runnel.bootstrap_servers)
    (tmp_path / FILE).write_text(json.dumps({"new": {}})[:-2])
    with BrokerView(runnel.bootstrap_servers) as broker, pytest.raises(BadCheckpoint, match=FILE):
        pinned_starts(pipeline, broker, str(tmp_path))
