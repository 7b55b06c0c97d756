"""The options of the sink, and the errors for invalid ones."""

import re
from unittest.mock import MagicMock

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from runnel.batch.compression import Compression
from runnel.pipelines.data_source import RunnelDataSource
from runnel.pipelines.declared.sink_queries import _topic_batches
from runnel.pipelines.errors import BadOption
from runnel.pipelines.sink.columns import Columns, record_columns
from runnel.pipelines.sink.commit_markers import PIECE_CHARACTERS, marker_from, marker_texts
from runnel.pipelines.sink.decision import CommitMarker, Part
from runnel.pipelines.sink.names import TransactionalIdPool, id_pattern, process_pool
from runnel.pipelines.sink.options import write_options
from runnel.pipelines.sink.writers import BatchWriter

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
HEADERS = "array<struct<key:string,value:binary>>"


def schema(text: str) -> StructType:
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    kinds = {
        "string": StringType(),
        "binary": BinaryType(),
        "int": IntegerType(),
        "bigint": LongType(),
        "timestamp": TimestampType(),
        HEADERS: ArrayType(header),
    }
    pairs = [pair.rsplit(" ", 1) for pair in text.split(", ")]
    return StructType([StructField(name, kinds[kind]) for name, kind in pairs])


def test_defaults_are_the_safe_ones():
    options = write_options({**SERVERS, "topic": "bills"})
    assert options.is_exactly_once and options.topic == "bills" and options.in_doubt == "fail"
    assert options.transaction_timeout_ms is None and options.compression is Compression.NONE


def test_names_are_taken_in_any_case():
    options = write_options({"Bootstrap.Servers": "h:1", "DELIVERY": "At-Least-Once", "inDOUBT": "skip"})
    assert (options.is_exactly_once, options.in_doubt, options.bootstrap_servers) == (False, "skip", "h:1")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"delivery": "twice"}, "delivery='twice' is not one of exactly-once, at-least-once"),
        ({"delivry": "exactly-once"}, "did you mean 'delivery'"),
        ({"kafka.compression.type": "brotli"}, "'brotli' is not one of none, gzip, snappy, lz4, zstd"),
        ({"transactionTimeoutMs": "soon"}, "'soon' is not an integer of at least 10000"),
        ({"transactionalIdPrefix": "a b"}, "'a b' is not a name"),
        ({"txnAppId": "billing"}, "txnAppId and txnVersion must be set together"),
        ({"txnAppId": "billing@bills", "txnVersion": "1"}, "'billing@bills' is not a name"),
        ({"txnFirstVersion": "0"}, "this is a write without a txnVersion"),
        ({"txnAppId": "a", "txnVersion": "4", "txnFirstVersion": "5"}, "this is the earlier 4"),
        ({"txnAppId": "a", "txnVersion": "4", "txnFirstVersion": "one"}, "'one' is not an integer"),
        ({"kafka.security.protocol": "TLS"}, "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ],
)
def test_invalid_options_are_rejected(given, complaint):
    with pytest.raises(BadOption, match=complaint):
        write_options({**SERVERS, **given})


def test_columns_are_found_by_name_in_any_order():
    text = f"extra bigint, HEADERS {HEADERS}, value binary, topic string, timestamp timestamp, partition int"
    found = record_columns(schema(text), None)
    assert found == Columns(value=2, key=None, topic=3, partition=5, headers=1, timestamp=4)


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ("value bigint", "column `value` must be string or binary, not bigint"),
        ("key bigint, value string", "column `key` must be string or binary"),
        ("text string", "a column `value` of type string or binary is required; found: text"),
        ("value string, partition string", "column `partition` must be int"),
        ("value string, timestamp bigint", "column `timestamp` must be timestamp"),
        ("value string, headers string", "column `headers` must be array"),
    ],
)
def test_invalid_columns_are_rejected(columns, complaint):
    with pytest.raises(BadOption, match=complaint):
        record_columns(schema(columns), "bills")


def test_a_topic_is_required_as_option_or_column():
    with pytest.raises(BadOption, match="no topic is set"):
        record_columns(schema("value string"), None)


def test_a_topic_cannot_be_overwritten():
    with pytest.raises(BadOption, match="cannot be overwritten"):
        RunnelDataSource({**SERVERS, "topic": "bills"}).writer(schema("value string"), overwrite=True)


@pytest.mark.parametrize("count", [0, 1, 40, 3000])
def test_a_commit_marker_is_parsed_from_its_pieces(count):
    parts = tuple(Part(f"q-{number % 7:016x}-{number}", 4000 + number, number % 3) for number in range(count))
    marker = CommitMarker(17, 12_345, parts, is_revoked=count == 1, is_ended=count == 40)
    texts = marker_texts(marker, "q-")
    assert all(len(text) <= PIECE_CHARACTERS for text in texts)
    assert marker_from(17, {index: (17, text) for index, text in enumerate(texts)}, "q-") == marker


def note_of(batch: int, *ids: str) -> CommitMarker:
    return CommitMarker(batch, 0, tuple(Part(name, 1, 0) for name in ids))


def test_an_id_is_reused_only_for_a_later_batch_and_by_its_own_process():
    pool = TransactionalIdPool()
    first, second = pool.take("q", 0, None), pool.take("q", 0, None)
    assert first != second
    before = note_of(0)
    assert {pool.take("q", 1, before), pool.take("q", 1, before)} == {first, second}
    assert pool.take("q", 1, before) not in (first, second)
    assert pool.take("other", 0, None).startswith("other-")
    assert TransactionalIdPool().take("q", 0, None) != first
    assert process_pool() is process_pool()


def test_an_id_in_the_commit_marker_is_not_reused_until_the_marker_is_replaced():
    pool = TransactionalIdPool()
    decided, lost = pool.take("q", 17, None), pool.take("q", 17, None)
    assert pool.take("q", 18, note_of(17, decided)) == lost
    third = pool.take("q", 18, note_of(17, decided))
    assert third not in (decided, lost)
    assert pool.take("q", 19, note_of(18, lost, third)) == decided


def test_an_id_of_a_batch_after_the_commit_marker_is_not_reused():
    pool = TransactionalIdPool()
    under_way = pool.take("q", 17, note_of(16))
    assert pool.take("q", 18, note_of(16)) != under_way
    assert pool.take("q", 18, None) != under_way


def test_an_id_of_an_unnumbered_write_is_not_pooled():
    pool = TransactionalIdPool()
    assert pool.new("job") != pool.new("job")
    assert not pool._used


def test_the_id_pattern_does_not_match_names_with_the_same_prefix():
    pattern = id_pattern("runnel-spark-sales")
    assert re.fullmatch(pattern, TransactionalIdPool().take("runnel-spark-sales", 0, None))
    assert not re.fullmatch(pattern, "runnel-spark-sales-2024-05")
    assert not re.fullmatch(pattern, TransactionalIdPool().take("runnel-spark-sales@bills", 0, None))


def target_of(**options: str):
    return BatchWriter(write_options({**SERVERS, **options}), schema("value string, topic string"))._info


def test_one_version_for_two_topics_is_two_writes():
    numbered = {"txnAppId": "billing", "txnVersion": "17"}
    names = [target_of(**numbered, topic=topic).name for topic in ("bills", "copies")]
    assert names == ["runnel-spark-billing@bills", "runnel-spark-billing@copies"]
    assert target_of(**numbered).name == "runnel-spark-billing"


def test_a_version_without_a_commit_marker_is_the_first_only_if_none_was_declared():
    numbered = {"txnAppId": "billing", "txnVersion": "17"}
    assert target_of(**numbered).may_be_first and target_of(**numbered, txnFirstVersion="17").may_be_first
    assert not target_of(**numbered, txnFirstVersion="0").may_be_first
    assert not target_of(**numbered).is_sequential


def test_batches_of_a_declared_query_are_counted_from_zero():
    batch = MagicMock()
    batch.sparkSession.sparkContext.getLocalProperty.return_value = "a-query"
    _topic_batches(SERVERS)(batch, 3)
    options = write_options(batch.write.format.return_value.mode.return_value.options.call_args.kwargs)
    assert (options.application, options.version, options.first_version) == ("a-query", 3, 0)
