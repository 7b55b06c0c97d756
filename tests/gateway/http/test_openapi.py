"""The OpenAPI document is what the API does: schemathesis calls every operation, and judges every answer."""

import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.gateway.http.openapi import document
from runnel.gateway.http.table import OPERATIONS
from tests.gateway.http.clients import Client

CONFIG = """\
[parameters]
"path.topic" = "{topic}"
"path.cluster" = "{cluster}"
"path.group" = "{group}"
"path.partition" = 0
"path.setting" = "retention.ms"

[checks]
# Content that is well-formed may be refused for what it says: a timestamp ahead of time, an unknown setting.
positive_data_acceptance.expected-statuses = ["2xx", 401, 403, 404, 409, 413, 422]
"""


def schemathesis(client: Client, folder: Path, config: str, *options: str) -> str:
    """Run it with all checks; its output, if it has found nothing."""
    path = folder / "schemathesis.toml"
    path.write_text(config)
    command = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"]
    command += ["--config-file", str(path), "run", f"{client.url}/openapi.json", "--checks", "all"]
    done = subprocess.run([*command, "--no-color", *options], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    return done.stdout


def config_of(client: Client, topic: str, group: str) -> str:
    [cluster] = client.get("/v3/clusters").json["data"]
    topic = f"{topic}-keys"
    client.create(topic, settings={"dedup.window.ms": "60000"})
    client.publish(topic, {"key": "a", "value": "b"}, {"value": {"c": 1}})
    message = client.get(f"/topics/{topic}/subscribe?group={group}").json
    client.post(f"/topics/{topic}/ack", {"messageId": message["messageId"]})
    return CONFIG.format(topic=topic, cluster=cluster["cluster_id"], group=group)


KEEP = ("--exclude-method", "DELETE")
"""The topic is needed until the end."""


def test_a_few_examples(client: Client, topic, group, tmp_path: Path) -> None:
    config = config_of(client, topic, group)
    options = ("--max-examples", "2", "--phases", "fuzzing", "--seed", "1", *KEEP)
    names = (
        "publish",
        "subscribe",
        "ack",
        "createTopic",
        "describeTopic",
        "v2Produce",
        "v3Records",
        "v3Lags",
    )
    chosen = [part for name in names for part in ("--include-operation-id", name)]
    schemathesis(client, tmp_path, config, *options, *chosen)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_all_operations(client: Client, topic, group, tmp_path: Path) -> None:
    config = config_of(client, topic, group)
    schemathesis(client, tmp_path, config, "--max-examples", "50", *KEEP)
    anything = "[checks]" + CONFIG.partition("[checks]")[2]
    schemathesis(client, tmp_path, anything, "--max-examples", "10", "--phases", "coverage,fuzzing")


def test_every_operation_is_documented() -> None:
    paths = document()["paths"]
    found = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert found == {(operation.method, operation.path) for operation in OPERATIONS}
    names = [operation.name for operation in OPERATIONS]
    assert len(set(names)) == len(names)


FIELDS = ("key", "value", "headers", "headersList", "partition", "records", "entries", "messageId")
BODIES = st.one_of(
    st.binary(max_size=200),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), inner, max_size=4)
        ),
        max_leaves=8,
    ),
)
NAMES = st.text(st.characters(max_codepoint=0x10FFFF, codec="utf-8"), min_size=1, max_size=10)
HEADERS = st.dictionaries(
    st.sampled_from(
        (
            "Content-Type",
            "Accept",
            "Authorization",
            "Last-Event-ID",
            "ce-specversion",
            "ce-id",
            "traceparent",
            "Expect",
            "Origin",
            "Idempotency-Key",
        )
    ),
    st.sampled_from(
        (
            "application/json",
            "application/x-ndjson",
            "application/cloudevents+json",
            "application/cloudevents-batch+json",
            "application/vnd.kafka.json.v2+json",
            "application/vnd.kafka.binary.v2+json",
            "1.0",
        )
    )
    | st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20).map(str.strip),
    max_size=4,
)


@settings(max_examples=100)
@given(data=st.data())
def test_fuzzed_bodies_names_and_headers_never_give_a_5xx(data, client: Client) -> None:
    operation = data.draw(st.sampled_from(OPERATIONS))
    path = operation.path
    for part in ("topic", "cluster", "group", "setting", "partition"):
        # Mostly a topic that exists: others are found to be missing after a while.
        known = {"topic": "fuzzed-http", "partition": "0"}.get(part)
        value = known if known and data.draw(st.integers(0, 19)) else quote(data.draw(NAMES), safe="")
        path = path.replace(f"{{{part}}}", value)
    query = data.draw(st.dictionaries(st.sampled_from(("offset", "max", "group", "cursor", "create")), NAMES))
    if query:
        path += "?" + "&".join(f"{name}={quote(value)}" for name, value in query.items())
    client.post("/topics", {"name": "fuzzed-http"})
    headers = data.draw(HEADERS)
    if headers.get("Accept", "").startswith("text/event-stream"):
        return
    answer = client.call(operation.method, path, data.draw(BODIES), headers)
    assert answer.status < 500, (operation.name, path, answer)
