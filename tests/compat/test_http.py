"""What is published by HTTP, read by Apache Kafka's console consumer, and the other way round."""

import json
import subprocess
import urllib.request
from uuid import uuid4

import pytest

from runnel.testing import LocalGateway
from tools.kafka.commands import tool

pytestmark = [pytest.mark.java, pytest.mark.usefixtures("kafka_jars")]

VALUES = ["a cup of tea", "grüße \U0001f600", '{"a": 1.50}', "", "tab\there", '"quoted"', "x" * 5000]


def test_the_console_consumer_reads_byte_for_byte_what_was_published(bootstrap, make_topic) -> None:
    topic = make_topic()
    gateway = LocalGateway(bootstrap, "PLAINTEXT")
    try:
        for number, value in enumerate(VALUES):
            body = json.dumps({"key": f"k{number}", "value": value, "headers": {"h": str(number)}}).encode()
            request = urllib.request.Request(
                f"{gateway.url}topics/{topic}/publish", body, {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=30) as response:
                assert response.status == 200
        produced = "tea\t\u00e4\n"
        subprocess.run(
            tool("kafka-console-producer", "--bootstrap-server", bootstrap, "--topic", topic),
            input=produced.encode(),
            check=True,
            capture_output=True,
            timeout=300,
        )
        reading = [
            "--bootstrap-server",
            bootstrap,
            "--topic",
            topic,
            "--from-beginning",
            "--group",
            uuid4().hex,
        ]
        reading += ["--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"]
        reading += ["--formatter-property", "key.separator=|", "--formatter-property", "headers.separator=,"]
        reading += ["--max-messages", str(len(VALUES) + 1), "--timeout-ms", "60000"]
        done = subprocess.run(
            tool("kafka-console-consumer", *reading), capture_output=True, check=True, timeout=300
        )
        lines = [f"h:{number}|k{number}|{value}\n" for number, value in enumerate(VALUES)]
        assert done.stdout == "".join([*lines, f"NO_HEADERS|null|{produced}"]).encode()
        with urllib.request.urlopen(f"{gateway.url}topics/{topic}/subscribe?offset=-1", timeout=30) as found:
            assert json.load(found)["messages"][0]["value"] == produced.rstrip("\n")
    finally:
        gateway.close()
