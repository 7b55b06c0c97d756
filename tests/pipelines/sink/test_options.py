"""What the sink can be asked for, and what it says to what it cannot do."""

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
from runnel.pipelines.errors import BadOption
from runnel.pipelines.sink.columns import Columns, record_columns
from runnel.pipelines.sink.decision import Note, Part
from runnel.pipelines.sink.names import IdPool, own_pool
from runnel.pipelines.sink.notes import PIECE_CHARACTERS, note_from, note_texts
from runnel.pipelines.sink.options import write_options

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
    assert options.transaction_timeout_ms == 900_000 and options.compression is Compression.NONE


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
        ({"transactionTimeoutMs": "soon"}, "'soon' is not a whole number from 10000 on"),
        ({"transactionalIdPrefix": "a b"}, "'a b' is not a name"),
        ({"txnAppId": "billing"}, "txnAppId and txnVersion go together"),
        ({"kafka.security.protocol": "SSL"}, "only PLAINTEXT is"),
    ],
)
def test_what_cannot_be_used_is_told(given, complaint):
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
        ("text string", "a column `value` is needed, string or binary; there are: text"),
        ("value string, partition string", "column `partition` must be int"),
        ("value string, timestamp bigint", "column `timestamp` must be timestamp"),
        ("value string, headers string", "column `headers` must be array"),
    ],
)
def test_columns_that_make_no_record_are_told(columns, complaint):
    with pytest.raises(BadOption, match=complaint):
        record_columns(schema(columns), "bills")


def test_a_topic_must_be_given_one_way_or_the_other():
    with pytest.raises(BadOption, match="to which topic"):
        record_columns(schema("value string"), None)


def test_a_topic_cannot_be_overwritten():
    with pytest.raises(BadOption, match="cannot be overwritten"):
        RunnelDataSource({**SERVERS, "topic": "bills"}).writer(schema("value string"), overwrite=True)


@pytest.mark.parametrize("count", [0, 1, 40, 3000])
def test_a_note_comes_back_from_its_pieces(count):
    parts = tuple(Part(f"q-{number % 7:016x}-{number}", 4000 + number, number % 3) for number in range(count))
    note = Note(17, 12_345, parts, is_revoked=count == 1)
    texts = note_texts(note, "q-")
    assert all(len(text) <= PIECE_CHARACTERS for text in texts)
    assert note_from(17, {index: (17, text) for index, text in enumerate(texts)}, "q-") == note


def test_an_id_is_used_again_only_for_a_later_batch_and_never_by_another_process():
    pool = IdPool()
    first, second = pool.take("q", 0), pool.take("q", 0)
    assert first != second
    assert {pool.take("q", 1), pool.take("q", 1)} == {first, second}
    assert pool.take("q", 1) not in (first, second)
    assert pool.take("other", 0).startswith("other-")
    assert IdPool().take("q", 0) != first
    assert own_pool() is own_pool()
