"""Credentials from properties, and that no error contains them."""

import shlex
import sys

import pytest

from runnel.client.credentials import read_credentials
from runnel.client.errors import InvalidProperty
from runnel.client.properties import ClientProperties
from runnel.client.security import ClientSecurity
from runnel.security.sasl_client import Credentials

SECRET = 'hunter2"; or \\ else'
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def credentials(**properties: str) -> Credentials:
    given = {name.replace("_", "."): value for name, value in properties.items()}
    return read_credentials(ClientProperties(given))[1]


def test_username_and_password():
    found = credentials(sasl_mechanism="PLAIN", sasl_username="anna", sasl_password=SECRET)
    assert (found.username, found.password) == ("anna", SECRET)
    found = credentials(sasl_mechanisms="SCRAM-SHA-512", sasl_username="anna", sasl_password=SECRET)
    assert (found.username, found.password) == ("anna", SECRET)
    assert "hunter2" not in repr(found)


def test_a_reference_in_a_jaas_line_may_have_any_value(monkeypatch):
    monkeypatch.setenv("RUNNEL_TEST_SECRET", SECRET)
    line = f'{PLAIN} required username="anna" password="${{env:RUNNEL_TEST_SECRET}}";'
    found = credentials(sasl_mechanism="PLAIN", sasl_jaas_config=line)
    assert (found.username, found.password) == ("anna", SECRET)


def test_a_whole_jaas_line_in_a_file(tmp_path):
    (tmp_path / "jaas").write_text(f'{SCRAM} required username="id" password="mac" tokenauth="true";\n')
    found = credentials(sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=f"${{file:{tmp_path}/jaas}}")
    assert (found.username, found.password, found.is_token) == ("id", "mac", True)


def test_tokens_of_oauthbearer(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("header.body.signature\n")
    monkeypatch.setenv("RUNNEL_TEST_SECRET", "header.body.signature")
    command = shlex.join([sys.executable, "-c", "print('header.body.signature')"])
    for given in (
        {"sasl.oauthbearer.token": "${env:RUNNEL_TEST_SECRET}"},
        {"sasl.oauthbearer.token": f"${{file:{tmp_path}/token}}"},
        {"sasl.oauthbearer.token.endpoint.url": f"file://{tmp_path}/token"},
        {"sasl.oauthbearer.token.command": command},
    ):
        properties = ClientProperties({"sasl.mechanism": "OAUTHBEARER", **given})
        assert read_credentials(properties)[1].token == "header.body.signature"


def test_extensions_of_oauthbearer():
    line = f'{OAUTH} required extension_tenant="a";'
    found = credentials(sasl_mechanism="OAUTHBEARER", sasl_jaas_config=line, sasl_oauthbearer_token="t")
    assert (found.token, dict(found.extensions)) == ("t", {"tenant": "a"})


@pytest.mark.parametrize(
    "properties, message",
    [
        ({}, "sasl.mechanism must be one of PLAIN, SCRAM"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism must be one of"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.username is required by PLAIN, or sasl.jaas.config"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a"}, "sasl.password is required"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": f'evil.Module required password="{SECRET}";'},
         "other classes are not loaded"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN} required password={SECRET}"},
         "sasl.jaas.config: "),
        ({"sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs a token"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://host/"},
         "only file:///path is supported"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.command": "/missing/program"},
         "the command cannot be run"),
        ({"sasl.mechanism": "OAUTHBEARER",
          "sasl.oauthbearer.token.command": shlex.join([sys.executable, "-c", "print('hunter2'); exit(3)"])},
         "failed with status 3"),
    ],
)  # fmt: skip
def test_errors_name_the_property_and_no_secret(properties, message):
    with pytest.raises(InvalidProperty, match=message) as refused:
        read_credentials(ClientProperties(properties))
    assert "hunter2" not in str(refused.value)


def test_a_rotated_password_is_used_and_an_unchanged_one_is_kept(monkeypatch):
    properties = ClientProperties(
        {
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "a",
            "sasl.password": "${env:RUNNEL_TEST_SECRET}",
        }
    )
    security = ClientSecurity(properties, "SASL_PLAINTEXT")
    monkeypatch.setenv("RUNNEL_TEST_SECRET", "one")
    security.new_mechanism()
    first = security._credentials
    security.new_mechanism()
    assert security._credentials is first
    monkeypatch.setenv("RUNNEL_TEST_SECRET", "two")
    security.new_mechanism()
    assert security._credentials is not None and security._credentials.password == "two"
