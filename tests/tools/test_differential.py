"""What counts as a difference, and that every case gets a response."""

from pathlib import Path

import pytest

from runnel.messages.metadata import MetadataResponse, MetadataResponseTopic
from tools.broker_process import BrokerProcess
from tools.differential.cases import compare_brokers
from tools.differential.comparison import Broker, BrokerPair, differences, plain

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "num.partitions": "4"}


def compared(ours: MetadataResponse, theirs: MetadataResponse, ignore: str = "") -> list[str]:
    pair = BrokerPair(Broker(0), Broker(0))
    pair.compare("case", 9, (ours, theirs), ignore)
    return [difference.where for difference in pair.cases["case"]]


def test_a_field_that_differs_is_found_where_it_is() -> None:
    ours = MetadataResponse(topics=[MetadataResponseTopic(name="a"), MetadataResponseTopic(3, "b")])
    theirs = MetadataResponse(topics=[MetadataResponseTopic(name="a"), MetadataResponseTopic(5, "b")])
    assert compared(ours, theirs) == ["topics[1].error_code"]
    assert compared(ours, theirs, ignore="error_code") == []


def test_order_addresses_and_null_or_empty_do_not_count() -> None:
    ours = MetadataResponse(
        cluster_id="x", topics=[MetadataResponseTopic(0, "a"), MetadataResponseTopic(0, "b")]
    )
    theirs = MetadataResponse(
        cluster_id="y", topics=[MetadataResponseTopic(0, "b"), MetadataResponseTopic(0, "a")]
    )
    assert compared(ours, theirs) == []
    assert plain([], frozenset()) is plain("", frozenset()) is plain(b"", frozenset()) is None


def test_missing_items_are_a_difference() -> None:
    assert list(differences({"items": [1, 2]}, {"items": [1]})) == [("items", [1, 2], [1])]
    assert list(differences("the connection is closed", {"items": [1]})) != []


@pytest.mark.slow
def test_two_equal_brokers_have_no_differences(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "one", SETTINGS) as one, BrokerProcess(tmp_path / "two", SETTINGS) as two:
        cases = compare_brokers(one.port, two.port, settle_s=0)
    assert len(cases) > 300
    assert [str(found[0]) for found in cases.values() if found] == []
