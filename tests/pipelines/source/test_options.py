"""Valid and invalid options."""

import pytest

from runnel.client.offsets import EARLIEST, LATEST
from runnel.model.ids import TopicPartition
from runnel.pipelines.errors import BadOption
from runnel.pipelines.source.admission import Admission
from runnel.pipelines.source.options import Bound, SourceOptions, read_options

BASE = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def options(**given: str) -> SourceOptions:
    return read_options(
        {**BASE, "subscribe": "orders", **{k.replace("__", "."): v for k, v in given.items()}}
    )


def test_defaults_are_those_of_sparks_kafka_connector() -> None:
    found = options()
    assert found.subscription.topics == ("orders",)
    assert found.starting is None and found.ending is None
    assert found.fail_on_data_loss and found.include_headers
    assert found.isolation == 1
    assert found.group_id == "spark-orders"
    assert found.value_format == "bytes"


def test_names_are_case_insensitive() -> None:
    found = read_options({"bootstrap.servers": "a:1", "SUBSCRIBE": "b, a,b", "failondataloss": "False"})
    assert found.bootstrap_servers == "a:1"
    assert found.subscription.topics == ("b", "a")
    assert not found.fail_on_data_loss
    assert found.group_id == "spark-b,a"


def test_starting_offsets() -> None:
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    assert options(startingOffsets="earliest").starting == Bound(moment=EARLIEST)
    assert options(endingOffsets=" LATEST ").ending == Bound(moment=LATEST)
    assert options(startingOffsets='{"orders": {"0": 23, "1": -2}}').starting == Bound(
        moments={second: EARLIEST}, offsets={first: 23}
    )
    assert options(startingTimestamp="1000", startingOffsets="latest").starting == Bound(moment=1000)
    assert options(endingOffsetsByTimestamp='{"orders": {"0": 5}}').ending == Bound(moments={first: 5})


def test_single_partitions() -> None:
    found = read_options({**BASE, "assign": '{"orders": [1, 0], "b": [2]}'}).subscription
    assert found.assigned == (
        TopicPartition("orders", 1), TopicPartition("orders", 0), TopicPartition("b", 2),
    )  # fmt: skip
    assert str(found) == "orders,b"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("startingOffset", "earliest", "did you mean 'startingOffsets'"),
        ("failOnDataloss_", "true", "did you mean 'failOnDataLoss'"),
        ("kafka.bootstrap.server", "a:1", "did you mean 'kafka.bootstrap.servers'"),
        ("maxOffsetPerTrigger", "5", "did you mean 'maxOffsetsPerTrigger'"),
        ("valueFormats", "json", "did you mean 'valueFormat'"),
        ("kafka.isolation.levels", "x", "did you mean 'kafka.isolation.level'"),
        ("startingOffsets", "first", "neither earliest, latest nor JSON"),
        ("startingOffsets", "{", "startingOffsets is not JSON"),
        ("startingOffsets", '{"orders": {"0": -3}}', "must look like"),
        ("startingOffsets", '{"orders": {"x": 1}}', "must look like"),
        ("startingOffsets", '{"orders": 1}', "must look like"),
        ("startingTimestamp", "yesterday", "startingTimestamp='yesterday' is not an integer"),
        ("startingOffsetsByTimestamp", '{"orders": {"0": -1}}', "must look like"),
        ("startingOffsetsByTimestampStrategy", "earliest", "error, latest"),
        ("minPartitions", "0", "of at least 1"),
        ("maxOffsetsPerTrigger", "many", "of at least 1"),
        ("maxBytesPerTrigger", "1GB", "of at least 1"),
        ("minOffsetsPerTrigger", "0", "of at least 1"),
        ("maxTriggerDelay", "5m", "requires minOffsetsPerTrigger"),
        ("failOnDataLoss", "yes", "neither true nor false"),
        ("kafka.isolation.level", "serializable", "read_committed, read_uncommitted"),
        ("valueFormat", "xml", "bytes, string, json, avro"),
        ("kafka.security.protocol", "TLS", "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("assign", '{"orders": [0]}', "one of the options subscribe, subscribePattern and assign"),
        ("valueSchema", "nowhere.avsc", "cannot be read"),
    ],
)
def test_mistakes_are_reported(name: str, value: str, message: str) -> None:
    with pytest.raises(BadOption, match=message):
        read_options({**BASE, "subscribe": "orders", name: value})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "orders"}, "kafka.bootstrap.servers is required"),
        (BASE, "is required, found none"),
        ({**BASE, "subscribe": " , "}, "contains no topic"),
        ({**BASE, "assign": "{}"}, "contains no partition"),
        ({**BASE, "assign": '{"orders": [-1]}'}, "must look like"),
        ({**BASE, "assign": "[]"}, "must look like"),
    ],
)
def test_what_is_missing_is_reported(given: dict[str, str], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        read_options(given)


@pytest.mark.parametrize(
    "name",
    ["kafka.fetch.min.bytes", "kafka.max.poll.records", "path", "mergeSchema", "kafka.session.timeout.ms",
     "kafkaConsumer.pollTimeoutMs", "groupIdPrefix", "checkpointLocation", "kafka.group.instance.id",
     "kafka.ssl.truststore.location", "kafka.sasl.mechanism", "kafka.auto.offset.reset"],
)  # fmt: skip
def test_unrelated_options_are_ignored(name: str) -> None:
    read_options({**BASE, "subscribe": "orders", name: "x"})


def test_a_schema_in_a_file_is_read_where_the_query_is_planned(tmp_path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text('"string"')
    assert options(valueFormat="avro", valueSchema=str(file)).value_schema == '"string"'
    assert options(valueSchema="a INT, b STRING").value_schema == "a INT, b STRING"


def test_the_limits_of_a_batch() -> None:
    assert options().admission == Admission()
    chosen = options(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="9", maxTriggerDelay="2 minutes")
    assert chosen.admission == Admission(9, offsets_min=5, delay_max_ms=120_000)
    assert options(minOffsetsPerTrigger="5000000").admission.offsets_max == 5_000_000
    with pytest.raises(BadOption, match="minOffsetsPerTrigger=10 exceeds maxOffsetsPerTrigger=9"):
        options(minOffsetsPerTrigger="10", maxOffsetsPerTrigger="9")


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [
        ("250ms", 250),
        ("30s", 30_000),
        ("15m", 900_000),
        ("15 min", 900_000),
        ("1h", 3_600_000),
        ("2d", 172_800_000),
    ],
)
def test_delays_in_sparks_notation(text: str, delay_ms: int) -> None:
    assert options(minOffsetsPerTrigger="5", maxTriggerDelay=text).admission.delay_max_ms == delay_ms


@pytest.mark.parametrize("text", ["", "0s", "5", "soon", "5 weeks", "-1s"])
def test_an_invalid_delay_is_rejected(text: str) -> None:
    with pytest.raises(BadOption, match="is not a duration, such as 30s"):
        options(minOffsetsPerTrigger="5", maxTriggerDelay=text)
