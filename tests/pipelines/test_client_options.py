"""Client properties as options of Spark."""

import pickle
from pathlib import Path

import pytest

from runnel.pipelines.broker import BrokerView
from runnel.pipelines.client_options import connection_options, read_client_properties
from runnel.pipelines.errors import BadOption
from runnel.pipelines.sink.options import WRITE_OPTIONS, write_options
from runnel.pipelines.source.options import READ_OPTIONS, read_options

SERVERS = {"kafka.bootstrap.servers": "h:1"}
SECRET = "hunter2-hunter2"


def test_names_with_and_without_the_prefix() -> None:
    given = {
        **SERVERS,
        "Kafka.Security.Protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "anna",
        "sasl.username": "other",
        "kafka.sasl.password": "${env:PASSWORD}",
        "kafka.client.id": "c",
        "subscribe": "orders",
    }
    expected = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "anna",
        "sasl.password": "${env:PASSWORD}",
    }
    assert dict(read_options(given).properties) == expected
    assert dict(write_options({**given, "topic": "t"}).properties) == expected


def test_options_take_precedence_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SSL\nssl.ca.location=a\nclient.id=x\n")
    found = read_client_properties({"kafka.properties.file": str(path), "kafka.ssl.ca.location": "b"})
    assert dict(found) == {"security.protocol": "SSL", "ssl.ca.location": "b", "client.id": "x"}
    assert connection_options("h:1", found) == {
        "kafka.bootstrap.servers": "h:1",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.ca.location": "b",
    }


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("kafka.security.protocol", SECRET, "security.protocol is not one of PLAINTEXT, SSL"),
        ("kafka.sasl.pasword", SECRET, "did you mean sasl.password"),
        ("kafka.ssl.cipher.suites", SECRET, "not supported"),
        ("kafka.properties.file", "/missing", "cannot read /missing"),
        ("kafka.propertiesfile", "/missing", "did you mean 'kafka.properties.file'"),
    ],
)
def test_mistakes_are_reported_without_the_value(name: str, value: str, message: str) -> None:
    for read, more in ((read_options, {"subscribe": "orders"}), (write_options, {"topic": "orders"})):
        with pytest.raises(BadOption, match=message) as refused:
            read({**SERVERS, **more, name: value})
        assert SECRET not in str(refused.value)


def test_the_options_are_listed() -> None:
    for name in ("kafka.security.protocol", "kafka.properties.file"):
        assert name in READ_OPTIONS and name in WRITE_OPTIONS


def test_parsed_options_reach_a_task_and_show_no_value() -> None:
    given = {
        **SERVERS,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.password": SECRET,
        "subscribe": "a",
    }
    options = read_options(given)
    assert SECRET not in repr(options)
    assert dict(pickle.loads(pickle.dumps(options)).properties) == dict(options.properties)


def test_protection_that_is_not_in_force_stops_the_driver() -> None:
    with pytest.raises(BadOption, match=r"sasl\.password has no effect without security\.protocol"):
        BrokerView("127.0.0.1:1", properties=read_client_properties({"kafka.sasl.password": SECRET}))
