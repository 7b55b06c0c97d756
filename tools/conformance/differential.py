"""Runnel and Apache Kafka, sent the same requests; the responses must be alike."""

from collections.abc import Mapping
from pathlib import Path

from tools.broker_process import BrokerProcess
from tools.conformance.result import SuiteResult
from tools.differential.cases import compare_brokers
from tools.kafka import node
from tools.kafka.commands import VERSION

KAFKA_SETTINGS = {
    "num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
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
    for case, differences in cases.items():
        (result.failed if differences else result.passed).append(case)
        for difference in differences[:1]:
            print(f"  {difference}")
    return result
