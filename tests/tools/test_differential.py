"""What counts as a difference, and that every case gets a response."""

from pathlib import Path

import pytest

from runnel.broker.apis.handlers import BROKER_APIS, CONTROLLER_APIS
from runnel.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from tools.broker_process import BrokerProcess
from tools.conformance.authorization import secured_broker, secured_settings
from tools.differential.authorization.run import (
    compare_authorization,
    controller_probes,
    probes,
    rename,
    revealing,
    users,
)
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


def test_denials_of_every_api_are_compared() -> None:
    assert {probe.api_key for probe in probes()} >= BROKER_APIS
    assert {probe.api_key for probe in controller_probes()} == CONTROLLER_APIS


def test_each_request_is_sent_without_each_acl_it_needs() -> None:
    for probe in probes():
        every = frozenset(acl for need in probe.needs for acl in need.acls())
        denied = [variant.acls for variant in probe.variants() if variant.is_denied]
        assert denied[0] == frozenset()
        for need in probe.needs:
            assert every - need.acls() in denied


def test_ids_and_ports_are_compared_by_what_they_stand_for() -> None:
    broker = Broker(9092)
    broker.topic_ids["a"] = b"1" * 16
    topics = [MetadataResponseTopic(0, "a", b"1" * 16), MetadataResponseTopic(29, "b", bytes(16))]
    response = MetadataResponse(brokers=[MetadataResponseBroker(1, "h", 9092)], topics=topics)
    rename(response, broker)
    found = plain(response, frozenset())
    assert [topic["topic_id"] for topic in found["topics"]] == ["a", bytes(16).hex()]
    assert found["brokers"][0]["port"] == "its port"


def test_denials_that_reveal_what_exists_are_found() -> None:
    alike = [{"name": "here", "error_code": 29}, {"name": "gone", "error_code": 29}]
    assert list(revealing({"topics": alike})) == []
    assert list(revealing({"topics": [alike[0], {"name": "gone", "error_code": 3}]})) != []


@pytest.mark.slow
def test_a_broker_that_permits_more_is_found(tmp_path: Path) -> None:
    settings = {**SETTINGS, **secured_settings()}
    unauthorized = users()[frozenset()]
    more = {**settings, "super.users": f"{settings['super.users']};User:{unauthorized}"}
    chosen = "Metadata$|DescribeGroups|OffsetForLeaderEpoch$|to a controller: Vote"
    with secured_broker(tmp_path / "one", settings) as one, secured_broker(tmp_path / "two", more) as two:
        cases = compare_authorization((one[0], two[0]), (one[1], two[1]), settle_s=0, pattern=chosen)
    different = {case for case, found in cases.items() if found}
    assert len(cases) > 20
    assert different == {case for case in cases if case.endswith(": no ACLs")}
