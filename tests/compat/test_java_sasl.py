"""Apache Kafka's tools manage users and tokens, and authenticate with them (--command-config)."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.compat.test_java_tools import TOOLS, tool
from tests.security.sasl_node import sasl_node
from tools import token_issuer
from tools.kafka.commands import SHORT_LIVED, java

pytestmark = [pytest.mark.java, pytest.mark.usefixtures("kafka_jars")]

LOGIN = "org.apache.kafka.common.security"
SCRAM = f"{LOGIN}.scram.ScramLoginModule required"
MODULES = {
    "PLAIN": f"{LOGIN}.plain.PlainLoginModule required",
    "SCRAM-SHA-256": SCRAM,
    "OAUTHBEARER": f"{LOGIN}.oauthbearer.OAuthBearerLoginModule required",
}
"""Of the mechanisms that the other tests do not use."""


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    folder = tmp_path_factory.mktemp("java")
    settings = {
        # Short sessions: Java's clients authenticate again while they run.
        "connections.max.reauth.ms": "3000",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        **token_issuer.settings(token_issuer.write_keys(folder / "keys.json")),
    }
    with sasl_node(str(folder / "data"), settings) as node:
        yield node


def config(path: Path, user: str, password: str, options: str = "") -> str:
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={SCRAM} username="{user}" password="{password}" {options};\n'
    )
    return str(path)


@pytest.mark.long
def test_a_user_of_kafka_configs_produces_consumes_and_has_tokens(node, tmp_path) -> None:
    server = ["--bootstrap-server", f"127.0.0.1:{node.ports['SASL_PLAINTEXT']}"]
    bob = config(tmp_path / "bob.properties", "bob", "bob-secret")
    entity = ["--entity-type", "users", "--entity-name", "carol"]
    added = tool(
        "kafka.admin.ConfigCommand", *server, "--command-config", bob, *entity,
        "--alter", "--add-config", "SCRAM-SHA-512=[password=carol-secret]",
    )  # fmt: skip
    assert "Completed updating" in added
    carol = config(tmp_path / "carol.properties", "carol", "carol-secret")
    described = tool("kafka.admin.ConfigCommand", *server, "--command-config", carol, *entity, "--describe")
    assert "SCRAM-SHA-512=iterations=4096" in described
    tool(f"{TOOLS}.ConsoleProducer", *server, "--topic", "t", "--command-config", carol, stdin="one\ntwo\n")
    created = tool(
        f"{TOOLS}.DelegationTokenCommand", *server, "--command-config", carol,
        "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob",
    )  # fmt: skip
    found = re.search(r"^(\S{22})\s+(\S+)\s+User:carol", created, re.M)
    assert found, created
    token = config(tmp_path / "token.properties", found[1], found[2], 'tokenauth="true"')
    reading = ["--topic", "t", "--from-beginning", "--max-messages", "2", "--timeout-ms", "60000"]
    consumed = tool(f"{TOOLS}.consumer.ConsoleConsumer", *server, *reading, "--command-config", token)
    assert {"one", "two"} <= set(consumed.split())


def test_a_wrong_password_is_reported_as_such(node, tmp_path) -> None:
    server = ["--bootstrap-server", f"127.0.0.1:{node.ports['SASL_PLAINTEXT']}"]
    wrong = config(tmp_path / "wrong.properties", "bob", "wrong")
    failed = tool(f"{TOOLS}.TopicCommand", *server, "--command-config", wrong, "--list", exit_code=1)
    assert "SaslAuthenticationException" in failed
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in failed


@pytest.mark.parametrize("mechanism", list(MODULES))
def test_a_java_client_produces_and_consumes(node, tmp_path, mechanism) -> None:
    """The test of latency sends each record and reads it before the next."""
    token = tmp_path / "token.jwt"
    token.write_text(token_issuer.token(subject="bob"))
    lines = ["security.protocol=SASL_PLAINTEXT", f"sasl.mechanism={mechanism}"]
    if mechanism == "OAUTHBEARER":
        handler = f"{LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler"
        lines.append(f"sasl.login.callback.handler.class={handler}")
        lines.append(f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}")
        lines.append(f"sasl.jaas.config={MODULES[mechanism]};")
    else:
        lines.append(f'sasl.jaas.config={MODULES[mechanism]} username="bob" password="bob-secret";')
    path = tmp_path / "client.properties"
    path.write_text("\n".join(lines))
    server = ["--bootstrap-server", f"127.0.0.1:{node.ports['SASL_PLAINTEXT']}", "--command-config", path]
    load = ["--topic", f"java-{mechanism}", "--num-records", 10, "--producer-acks", 1, "--record-size", 100]
    flags = (*SHORT_LIVED, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token.as_uri()}")
    command = java(f"{TOOLS}.EndToEndLatency", *server, *load, flags=flags)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Avg latency" in done.stdout
