"""Runnel and Apache Kafka, sent the same requests; the responses must be alike."""

from collections.abc import Mapping
from pathlib import Path

from tools.broker_process import BrokerProcess
from tools.conformance.result import SuiteResult
from tools.kafka import node
from tools.kafka.commands import VERSION
from tools.twin.interview import interview

KAFKA_SETTINGS = {
    "num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.share.enable": "true",
}


def run(folder: Path, settings: Mapping[str, str]) -> SuiteResult:
    description = f"requests that Runnel and Apache Kafka {VERSION} are sent in every version of the protocol"
    result = SuiteResult("Responses equal to Apache Kafka's", description)
    kafka = node.start(folder / "kafka", KAFKA_SETTINGS)
    try:
        with BrokerProcess(folder / "runnel", settings) as broker:
            questions = interview(broker.port, kafka.port)
    finally:
        kafka.stop()
    for question, differences in questions.items():
        (result.failed if differences else result.passed).append(question)
        for difference in differences[:1]:
            print(f"  {difference}")
    return result
