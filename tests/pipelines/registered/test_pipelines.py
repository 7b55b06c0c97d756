"""Declared pipelines and archives of values with schemas of a registry, and the documented program."""

import re
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

from runnel.pipelines.archive.job import ArchiveOptions
from runnel.pipelines.archive.job import run as run_archive
from runnel.pipelines.archive.layout import open_archive
from runnel.pipelines.declared.analysis import analyse
from runnel.pipelines.declared.findings import Findings
from runnel.pipelines.declared.job import DeclaredOptions, run
from runnel.pipelines.errors import BadOption
from runnel.pipelines.progress import Progress
from runnel.pipelines.tables import open_catalog
from tests.gateway.registry.test_confluent_clients import EVOLVED
from tests.pipelines.declared.shop import declared
from tests.pipelines.declared.test_page import BLOCKS, REGISTRY_FILE

ORDER = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},'
    '{"name":"amount","type":"double"},{"name":"note","type":["null","string"],"default":null}]}'
)
LARGE = (
    '{"type":"record","name":"Large","fields":[{"name":"id","type":"long"},'
    '{"name":"note","type":["null","string"]},{"name":"seen","type":"boolean","default":true}]}'
)
EVENT = 'syntax = "proto3";\npackage shop;\nmessage Other {}\nmessage Event { string name = 1; }\n'


@pytest.mark.slow
def test_the_pipeline_of_the_page(spark, broker, url, registry, topic, tmp_path: Path) -> None:
    """Subjects of the file are found, and a record that is not framed becomes a dead letter."""
    text = BLOCKS[REGISTRY_FILE].replace("http://127.0.0.1:8080", url)
    text = re.sub(r"\borders\b(?=$|-value)", topic.name, text, flags=re.MULTILINE)
    text = text.replace(f"FROM {topic.name}", "FROM orders").replace(f"large-{topic.name}", "large-orders")
    pipeline = declared(tmp_path, text, RUNNEL_BOOTSTRAP=broker.bootstrap_servers)
    topic.register(ORDER)
    registry.register_schema("events-value", Schema(EVENT, "PROTOBUF"))
    with broker.client() as kafka:
        for name in ("events", "events-old"):
            kafka.create_topic(name, partitions=1)
    serialize = AvroSerializer(registry, ORDER)
    orders = [{"id": 1, "amount": 500.0, "note": "cups"}, {"id": 2, "amount": 5.0}]
    topic.send(*(serialize(order, topic.context) for order in orders), b"plain")
    with pytest.raises(BadOption, match="large-orders-value, version latest, is not registered"):
        run(spark, DeclaredOptions(pipeline, once=True), Progress())
    registry.register_schema("large-orders-value", Schema(LARGE, "AVRO"))

    findings = Findings()
    analyse(spark, pipeline, findings)
    assert [finding.line("file") for finding in findings] == []
    run(spark, DeclaredOptions(pipeline, once=True), Progress())
    with broker.client() as kafka:
        (large,) = kafka.read("large-orders", committed_only=True)
        (letter,) = kafka.read(f"{topic.name}.dead-letters", committed_only=True)
    assert large.key == b"1"
    read = AvroDeserializer(registry)
    assert read(large.value, topic.context) == {"id": 1, "note": "cups", "seen": True}
    assert letter.value == b"plain"


@pytest.mark.slow
def test_an_archive_has_the_decoded_values(spark, broker, url, topic, tmp_path: Path) -> None:
    topic.register(EVOLVED)
    serialize = AvroSerializer(topic.registry, EVOLVED)
    topic.send(serialize({"id": 1, "note": "cups"}, topic.context), b"plain")
    options = ArchiveOptions(
        bootstrap=broker.bootstrap_servers,
        warehouse=str(tmp_path / "warehouse"),
        checkpoint=str(tmp_path / "checkpoint"),
        topics=(topic.name,),
        value_format="avro",
        value_registry={"schemaRegistry.url": url},
    )
    run_archive(spark, options, Progress())
    with open_catalog(str(tmp_path / "warehouse")) as catalog:
        table = open_archive(catalog, "archive", topic.name).read(spark)
        good, bad = table.orderBy("offset").select("decoded", "decode_error", "value").collect()
    assert (good.decoded.id, good.decoded.note, good.decode_error) == (1, "cups", None)
    assert bad.decoded is None and "does not begin with a zero byte" in bad.decode_error


def test_the_program_of_the_page(spark, broker, url, registry) -> None:
    page = (Path(__file__).parents[3] / "docs" / "SPARK.md").read_text("utf-8")
    (program,) = re.findall(r"^```python registry\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    registry.register_schema("orders-avro-value", Schema(EVOLVED, "AVRO"))
    with broker.client() as kafka:
        kafka.create_topic("orders-avro", partitions=1)
    program = program.replace("127.0.0.1:9092", broker.bootstrap_servers)
    exec(program.replace("http://127.0.0.1:8080", url), {"spark": spark})
