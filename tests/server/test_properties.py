"""Settings files in Java's properties format, compared with java.util.Properties where Java is installed."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.controller.settings import Settings
from runnel.model.properties import BadProperties, parse_properties
from runnel.server.layers import BadSettings, static_settings
from runnel.server.roles import roles_of

CASES = {
    "a=1": {"a": "1"},
    "a = 1": {"a": "1"},
    "a:1": {"a": "1"},
    "a 1": {"a": "1"},
    "  a\t=\t1 ": {"a": "1 "},
    "a": {"a": ""},
    "a=": {"a": ""},
    "a=b=c": {"a": "b=c"},
    "a==b": {"a": "=b"},
    "a = = b": {"a": "= b"},
    "# a=1\n! b=2\n  # c=3\n\n \t\nd=4": {"d": "4"},
    "a=1 # no comment": {"a": "1 # no comment"},
    "a=1,\\\n   2,\\\r\n\t3\nb=4": {"a": "1,2,3", "b": "4"},
    "a=1\\\n# no comment": {"a": "1# no comment"},
    "a=1\\\\\nb=2": {"a": "1\\", "b": "2"},
    "a=1\\": {"a": "1"},
    "a\\ b=1": {"a b": "1"},
    "a\\=b\\:c=1": {"a=b:c": "1"},
    "a=\\t\\n\\f\\r\\x\\\\": {"a": "\t\n\f\rx\\"},
    "a=\\u00e4\\u20AC": {"a": "ä€"},
    "a=1\na=2": {"a": "2"},
    "a=1\rb=2": {"a": "1", "b": "2"},
    "=1": {"": "1"},
    "\\\n\\\na=1": {"a": "1"},
}


@pytest.mark.parametrize("text", CASES, ids=repr)
def test_properties(text: str) -> None:
    assert parse_properties(text) == CASES[text]


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uXYZW", "\\u=1"])
def test_a_malformed_escape_is_an_error(text: str) -> None:
    with pytest.raises(BadProperties, match="needs four hexadecimal digits"):
        parse_properties(text)


@given(st.text("ab=: \\\n\r#!\t", max_size=30))
def test_any_text_is_parsed(text: str) -> None:
    for name, value in parse_properties(text).items():
        assert "\r" not in name + value


JAVA = """
import java.nio.file.*; import java.util.*;
public class Show {
    public static void main(String[] arguments) throws Exception {
        for (String name : arguments) {
            Properties properties = new Properties();
            properties.load(Files.newInputStream(Path.of(name)));
            TreeMap<Object, Object> sorted = new TreeMap<>(properties);
            StringBuilder line = new StringBuilder();
            sorted.forEach((key, value) -> line.append(key + "\\u0001" + value + "\\u0002"));
            for (char c : line.toString().toCharArray()) System.out.print((int) c + " ");
            System.out.println();
        }
    }
}
"""


@pytest.mark.java
@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")
def test_java_reads_the_same(tmp_path: Path) -> None:
    (tmp_path / "Show.java").write_text(JAVA)
    files = []
    for number, text in enumerate(CASES):
        files.append(tmp_path / f"{number}.properties")
        files[-1].write_bytes(text.encode("latin-1"))
    command = ["java", str(tmp_path / "Show.java"), *map(str, files)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout
    for (text, ours), line in zip(CASES.items(), shown.splitlines(), strict=True):
        theirs = "".join(chr(int(code)) for code in line.split())
        assert theirs == "".join(f"{k}\x01{v}\x02" for k, v in sorted(ours.items())), repr(text)


SERVER_PROPERTIES = """\
# Licensed to the Apache Software Foundation (ASF) under one or more contributor license agreements.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\\
  SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
log.dirs=/tmp/kraft-combined-logs
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
log.retention.hours=168
log.segment.bytes=1073741824
"""


@pytest.mark.parametrize("name", ["server.properties", "kafka.conf"])
def test_the_server_properties_that_kafka_ships(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(SERVER_PROPERTIES)
    settings = Settings(static_settings(tmp_path / name, {}, []))
    assert settings.words("log.dirs") == ["/tmp/kraft-combined-logs"]
    assert settings.int("socket.send.buffer.bytes") == 102400
    assert "num.io.threads" in settings.ignored
    assert roles_of(settings).is_controller


def test_toml_is_recognized_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "settings").write_text('[log.retention]\nhours = 24\nlisteners = ["A://:1", "B://:2"]\n')
    assert static_settings(tmp_path / "settings", {}, []) == {
        "log.retention.hours": "24",
        "log.retention.listeners": "A://:1,B://:2",
    }


def test_the_error_names_a_broken_file(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("a=\\u1")
    with pytest.raises(BadSettings, match=r"server\.properties is not a valid properties file"):
        static_settings(tmp_path / "server.properties", {}, [])
