"""Runnel and Apache Kafka, sent the same requests; the responses must be alike."""

from collections.abc import Mapping
from pathlib import Path

from tools.broker_process import BrokerProcess
from tools.conformance.result import SuiteResult
from tools.differential.cases import compare_brokers
from tools.kafka import node
from tools.kafka.commands import VERSION
from tools.settings import STANDARD_AUTHORIZER

KAFKA_SETTINGS = {
    "num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "group.share.enable": "true",
}


def run(folder: Path, settings: Mapping[str, str]) -> SuiteResult:
    description = f"requests to Runnel and Apache Kafka {VERSION}, in every version of the protocol"
    result = SuiteResult("Responses equal to Apache Kafka's", description)
    kafka = node.start(folder / "kafka", KAFKA_SETTINGS)
    try:
        with BrokerProcess(folder / "runnel", settings) as broker:
            cases = compare_brokers(broker.port, kafka.port)
    finally:
        kafka.stop()
    result.record_differences(cases)
    return result
