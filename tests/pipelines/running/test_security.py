"""Spark reads and writes over TLS, and shows no secret: in plans, progress, checkpoints and errors."""

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runnel.client.properties import ClientProperties
from runnel.client.sync import SyncClient
from runnel.pipelines.declared.job import DeclaredOptions, run
from runnel.pipelines.progress import Progress
from tests.pipelines.declared.shop import declared
from tests.tls_proxy import TlsProxy, broker_behind
from tools.certificates import KEY_PASSWORD, CaFolder, KeyFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PIPELINE = """
name: copy
broker-properties: client.properties
sources:
  orders: {topic: orders, format: string}
sinks:
  copies: {from: orders, topic: copies, value: value}
"""


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> CaFolder:
    return CaFolder(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def identity(ca: CaFolder) -> KeyFiles:
    return ca.issue("client")


@pytest.fixture(scope="module")
def address(ca: CaFolder) -> Iterator[str]:
    """A broker that requires TLS with certificates of clients."""
    proxy = TlsProxy(ca.issue("server", "127.0.0.1"), ca, asks_for_certificates=True)
    with broker_behind(proxy):
        yield f"127.0.0.1:{proxy.port}"


@pytest.fixture(scope="module")
def properties(ca: CaFolder, identity: KeyFiles) -> ClientProperties:
    return ClientProperties(
        {
            "security.protocol": "SSL",
            "ssl.ca.location": str(ca.certificate),
            "ssl.certificate.location": str(identity.certificate),
            "ssl.key.location": str(identity.encrypted_key),
            "ssl.key.password": KEY_PASSWORD,
        }
    )


@pytest.fixture(scope="module")
def client(address: str, properties: ClientProperties) -> Iterator[SyncClient]:
    with SyncClient(address, properties=properties) as client:
        client.create_topic("orders", partitions=2)
        client.send_all("orders", [(None, f"order {number}".encode()) for number in range(50)])
        yield client


def spark_options(address: str, properties: ClientProperties) -> dict[str, str]:
    own = {f"kafka.{name}": value for name, value in properties.items()}
    return {"kafka.bootstrap.servers": address, **own}


def plans(frame: "DataFrame") -> str:
    """Everything that Spark shows of a plan."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        for mode in ("extended", "cost", "formatted"):
            frame.explain(mode=mode)
    execution = frame._jdf.queryExecution()
    return f"{shown.getvalue()} {execution.toString()} {execution.logical().toJSON()}"


def assert_no_secret(*texts: str) -> None:
    assert not any(KEY_PASSWORD in text for text in texts)


def assert_no_secret_in(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    assert not any(KEY_PASSWORD.encode() in path.read_bytes() for path in files)


def test_batches_and_streams(spark: "SparkSession", address, properties, client, tmp_path: Path) -> None:
    options = spark_options(address, properties)
    frame = spark.read.format("runnel").options(**options).option("subscribe", "orders").load()
    assert frame.count() == 50
    assert_no_secret(plans(frame))
    frame.select("value").write.format("runnel").mode("append").options(**options, topic="batch").save()
    assert len(client.read("batch", committed_only=True)) == 50

    stream = spark.readStream.format("runnel").options(**options, subscribe="orders")
    rows = stream.option("startingOffsets", "earliest").load().select("value")
    writer = rows.writeStream.format("runnel").options(**options, topic="stream")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    assert len(client.read("stream", committed_only=True)) == 50
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        query.explain(extended=True)
    progress = [report.json for report in query.recentProgress]
    assert progress
    assert_no_secret(shown.getvalue(), *progress)
    assert_no_secret_in(tmp_path)


def test_tasks_resolve_references(spark: "SparkSession", address, properties, client, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f"{KEY_PASSWORD}\n")
    config = tmp_path / "client.properties"
    given = {**properties, "ssl.key.password": f"${{file:{tmp_path}/password}}"}
    config.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    reader = spark.read.format("runnel").option("kafka.bootstrap.servers", address)
    reader = reader.option("kafka.properties.file", str(config)).option("subscribe", "orders")
    assert reader.load().count() == 50


def test_errors(spark: "SparkSession", address, properties, client) -> None:
    wrong = spark_options(address, properties.with_more({"ssl.key.password": f"x{KEY_PASSWORD}"}))
    frame = spark.read.format("runnel").options(**wrong).option("subscribe", "orders").load()
    with pytest.raises(Exception, match=r"ssl\.key\.password is wrong") as refused:
        frame.count()
    assert_no_secret(str(refused.value), repr(refused.value))
    with pytest.raises(Exception, match=r"ssl\.key\.password is wrong") as refused:
        writer = spark.range(1).selectExpr("'a' value").write.format("runnel").mode("append")
        writer.options(**wrong, topic="orders").save()
    assert_no_secret(str(refused.value), repr(refused.value))


def test_a_declared_pipeline(spark: "SparkSession", address, properties, client, tmp_path: Path) -> None:
    folder = tmp_path / "pipeline"
    folder.mkdir()
    lines = (f"{name}={value}\n" for name, value in properties.items())
    (folder / "client.properties").write_text("".join(lines))
    pipeline = declared(folder, PIPELINE, RUNNEL_BOOTSTRAP=address)
    assert dict(pipeline.properties) == dict(properties)
    assert_no_secret(repr(pipeline))
    outcome = run(spark, DeclaredOptions(pipeline, once=True), Progress())
    assert outcome.queries[0].records == 50
    assert len(client.read("copies", committed_only=True)) == 50
    assert_no_secret(json.dumps(outcome, default=str), repr(outcome))
    assert_no_secret_in(folder / ".runnel")
