"""Metadata that Apache Kafka writes is read and written again byte by byte, and the other way round."""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runnel.batch.header import read_header
from runnel.batch.records import iterate_records
from runnel.controller.features import METADATA_VERSION
from runnel.controller.image import MetadataImage
from runnel.controller.record_versions import record_version
from runnel.controller.snapshot_batches import metadata_record, read_snapshot, snapshot_batches
from runnel.controller.transactions import OpenTransaction
from runnel.controller.values import ConfigResource
from runnel.disk.os_files import OsFiles
from runnel.disk.snapshots import SnapshotFiles
from runnel.messages import (
    alter_client_quotas,
    alter_user_scram_credentials,
    create_acls,
    create_topics,
    delete_topics,
    incremental_alter_configs,
    init_producer_id,
)
from runnel.model.ids import SnapshotId
from runnel.schemas.metadata import MetadataRecord, RegisterBrokerRecord, encode_metadata_record
from runnel.wire import Request
from tests.controller.images import same
from tests.controller.test_snapshot_records import KEPT, image_of
from tools.differential.comparison import Broker
from tools.kafka import node
from tools.kafka.commands import tool

pytestmark = pytest.mark.java

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
}
TOPIC, BROKER, CLIENT_METRICS = 2, 4, 16

NEWEST = "4.3-IV0"
RECORDED = Path(__file__).parent / "metadata"
"""Metadata of Kafka at older levels, by level; recorded with --rewrite."""


def set_config(kind: int, name: str, key: str, value: str | None) -> Request:
    operation = 1 if value is None else 0
    config = incremental_alter_configs.AlterableConfig(key, operation, value)
    resource = incremental_alter_configs.AlterConfigsResource(kind, name, [config])
    return incremental_alter_configs.IncrementalAlterConfigsRequest([resource])


REQUESTS: list[tuple[Request, int]] = [
    (create_topics.CreateTopicsRequest([create_topics.CreatableTopic("kept", 3, 1)]), 7),
    (create_topics.CreateTopicsRequest([create_topics.CreatableTopic("gone", 1, 1)]), 7),
    (set_config(TOPIC, "kept", "retention.ms", "1000"), 1),
    (set_config(TOPIC, "kept", "cleanup.policy", "compact"), 1),
    (set_config(TOPIC, "kept", "cleanup.policy", None), 1),
    (set_config(BROKER, "1", "log.cleaner.threads", "2"), 1),
    (set_config(CLIENT_METRICS, "some", "interval.ms", "5000"), 1),
    (
        alter_client_quotas.AlterClientQuotasRequest(
            [
                alter_client_quotas.EntryData(
                    [
                        alter_client_quotas.EntityData("user", "a"),
                        alter_client_quotas.EntityData("client-id", None),
                    ],
                    [alter_client_quotas.OpData("producer_byte_rate", 1e6)],
                )
            ]
        ),
        1,
    ),
    (
        alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            upsertions=[
                alter_user_scram_credentials.ScramCredentialUpsertion("a", 1, 4096, b"salt", b"p" * 32)
            ]
        ),
        0,
    ),
    (
        create_acls.CreateAclsRequest(
            [create_acls.AclCreation(TOPIC, "kept", 3, "User:a", "*", 3, 3)],
        ),
        3,
    ),
]


def written_by_kafka(folder: Path, formatting: tuple[str, ...]) -> Path:
    """The folder of the metadata log of a node that was used and stopped."""
    running = node.start(folder, SETTINGS, formatting, node.QUICK_START)
    client = Broker(running.port)
    try:
        for request, version in REQUESTS:
            assert not isinstance(client.request(request, version, "test"), str)
        deletion = delete_topics.DeleteTopicsRequest(
            [delete_topics.DeleteTopicState("gone")], timeout_ms=9000
        )
        repeated(client, deletion, 6, lambda response: response.responses[0].error_code)
        producer = init_producer_id.InitProducerIdRequest(None, 60_000)
        repeated(client, producer, 4, lambda response: response.error_code)
    finally:
        client.close()
        running.stop()
    return folder / "log" / "__cluster_metadata-0"


def repeated(client: Broker, request: Request, version: int, errors: Callable[[Any], int]) -> None:
    """Until the broker knows what the controller knows, it refuses requests."""
    for _ in range(50):
        if not errors(client.request(request, version, "test")):
            return
        time.sleep(0.1)
    pytest.fail(f"{request} is refused")


def batches_of(path: Path) -> Iterator[memoryview]:
    data = memoryview(path.read_bytes())
    while len(data) >= 61:
        size = 12 + int.from_bytes(data[8:12])
        if size == 12:
            return  # preallocated
        yield data[:size]
        data = data[size:]


def check_written_again(values: list[bytes], level: int) -> None:
    for value in values:
        record = metadata_record(value)
        again = encode_metadata_record(record, record_version(record, level))
        assert again == value, f"{record} is {value.hex()} in Kafka and {again.hex()} here"


@pytest.mark.slow
@pytest.mark.usefixtures("kafka_jars")
def test_what_kafka_writes_is_read_and_written_again(tmp_path: Path) -> None:
    check_read_and_written_again(written_by_kafka(tmp_path, ()), NEWEST)


@pytest.mark.parametrize("release", ["3.7-IV2", "3.4-IV0"])
def test_what_kafka_wrote_at_older_levels(tmp_path: Path, release: str, rewrite: bool) -> None:
    recorded = RECORDED / release
    if rewrite:
        record(written_by_kafka(tmp_path, ("--release-version", release)), recorded)
    check_read_and_written_again(recorded, release)


def record(folder: Path, recorded: Path) -> None:
    """Keep the snapshots and the log of a node, without the space that is allocated in advance."""
    shutil.rmtree(recorded, ignore_errors=True)
    recorded.mkdir(parents=True)
    for path in [*folder.glob("*.log"), *folder.glob("*.checkpoint")]:
        (recorded / path.name).write_bytes(b"".join(batches_of(path)))


def check_read_and_written_again(folder: Path, release: str) -> None:
    image, transaction = MetadataImage(), OpenTransaction()
    at_offset = {}
    for path in sorted(folder.glob("*.log")):
        for batch in batches_of(path):
            header = read_header(batch)
            if not header.is_control:
                values = [bytes(record.value or b"") for record in iterate_records(batch)]
                records = [metadata_record(value) for value in values]
                image.replay_batch(transaction.published(records), header.last_offset + 1)
                if METADATA_VERSION in image.features:
                    check_written_again(values, image.metadata_level)
            at_offset[header.last_offset + 1] = image.copy()
    check_content(image, release)
    check_snapshots(folder, at_offset)


def check_content(image: MetadataImage, release: str) -> None:
    is_new = release == NEWEST
    assert [*image.topics] == ["kept"] and image.partition_count == 3
    assert image.topic_configs("kept") == {"retention.ms": "1000"}
    assert image.configs[ConfigResource(CLIENT_METRICS, "some")] == {"interval.ms": "5000"}
    assert image.broker_configs(1) == {"log.cleaner.threads": "2"}
    assert list(image.quotas.values()) == [{"producer_byte_rate": 1e6}]
    assert image.next_producer_id == 1000
    assert len(image.acls) == 1
    assert image.brokers[1].is_active or image.brokers[1].is_fenced
    assert ("a" in image.credentials) == (image.metadata_level >= 11)
    assert (1 in image.controllers) == (image.metadata_level >= 15)
    assert image.has_eligible_replicas == is_new


def check_snapshots(folder: Path, at_offset: dict[int, MetadataImage]) -> None:
    store = SnapshotFiles(OsFiles(), str(folder))
    snapshots = [each for each in store.ids() if each.end_offset in at_offset and each.end_offset > 0]
    assert snapshots, "Kafka wrote no snapshot"
    for snapshot in snapshots:
        image = MetadataImage()
        for records in read_snapshot(store.read(snapshot)):
            image.replay_batch(records, snapshot.end_offset)
            level = image.metadata_level
            check_written_again(
                [encode_metadata_record(each, record_version(each, level)) for each in records], level
            )
        assert same(in_order(image), in_order(at_offset[snapshot.end_offset]))


def in_order(image: MetadataImage) -> MetadataImage:
    """With features sorted: Kafka's snapshots have them in any order."""
    for broker in list(image.brokers.values()):
        image.brokers[broker.id] = replace(broker, features=tuple(sorted(broker.features)))
    for controller in list(image.controllers.values()):
        features = tuple(sorted(controller.features))
        image.controllers[controller.id] = replace(controller, features=features)
    return image


@pytest.mark.slow
@pytest.mark.usefixtures("kafka_jars")
def test_kafka_reads_our_snapshots(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000099-0000000001.checkpoint"
    image = image_of(KEPT)
    path.write_bytes(b"".join(bytes(batch) for batch in snapshot_batches(image, 1000, 1)))
    command = tool("kafka-dump-log", "--cluster-metadata-decoder", "--files", path)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    shown = done.stdout
    for record in KEPT:
        assert f'"type":"{kind_in_kafka(record)}"' in shown, shown
    assert shown.count('"type":"') >= len(KEPT)
    assert '"cordonedLogDirs":["' in shown and '"eligibleLeaderReplicas":[1]' in shown


def kind_in_kafka(record: MetadataRecord) -> str:
    name = type(record).__name__
    return "".join("_" + letter if letter.isupper() else letter.upper() for letter in name).lstrip("_")


def test_the_id_of_a_snapshot_is_its_name(tmp_path: Path) -> None:
    store = SnapshotFiles(OsFiles(), str(tmp_path))
    image = image_of([RegisterBrokerRecord(1)])
    store.write(SnapshotId(7, 2), list(snapshot_batches(image, 0, 2)))
    assert [path.name for path in tmp_path.iterdir()] == ["00000000000000000007-0000000002.checkpoint"]
