"""Client properties: names, files, references, and that no value is shown."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.client.errors import InvalidProperty
from runnel.client.properties import PROPERTIES, ClientProperties
from runnel.client.references import is_reference
from runnel.client.security import security_of

SECRET = "hunter2-hunter2"


@pytest.mark.parametrize(
    "name, message",
    [
        ("sasl.pasword", "did you mean sasl.password"),
        ("ssl.truststore.locaton", "did you mean ssl.truststore.location"),
        ("ssl.cipher.suites", "is not supported"),
        ("sasl.client.callback.handler.class", "is not supported"),
        ("ssl.engine.factory.class", "is not supported"),
    ],
)
def test_unknown_names_are_refused_without_their_value(name, message):
    with pytest.raises(InvalidProperty, match=message) as refused:
        ClientProperties({name: SECRET})
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("name", ["acks", "client.id", "sasl.login.refresh.window.factor", "ssl.protocol"])
def test_other_names_of_kafkas_clients_are_accepted(name):
    assert name in ClientProperties({name: "1"})


def test_a_file_is_read_as_java_reads_it(tmp_path):
    path = tmp_path / "client.properties"
    path.write_bytes(
        b'# comment\nsecurity.protocol = SASL_SSL \nsasl.jaas.config=a required \\\n  username="b";\n'
        b"sasl.password=p\\u00e4ss\xe4\n"
    )
    properties = ClientProperties.from_file(path)
    assert dict(properties) == {
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": 'a required username="b";',
        "sasl.password": "pässä",
    }


def test_a_malformed_file_is_refused_without_its_text(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text(f"sasl.password={SECRET}\\u12\n")
    with pytest.raises(InvalidProperty, match="not a valid properties file") as refused:
        ClientProperties.from_file(path)
    assert SECRET not in str(refused.value)
    with pytest.raises(InvalidProperty, match=r"cannot read .*missing"):
        ClientProperties.from_file(tmp_path / "missing")


def test_assignments():
    properties = ClientProperties.from_assignments(["sasl.username = anna", "sasl.password=a=b"])
    assert dict(properties) == {"sasl.username": "anna", "sasl.password": "a=b"}
    with pytest.raises(InvalidProperty, match="name=value") as refused:
        ClientProperties.from_assignments([SECRET])
    assert SECRET not in str(refused.value)


def test_references_are_resolved_when_a_value_is_used(tmp_path, monkeypatch):
    (tmp_path / "password").write_text(f"{SECRET}\n")
    (tmp_path / "secrets.properties").write_text(f"one = {SECRET}1\n")
    references = {
        "env": "${env:RUNNEL_TEST_SECRET}",
        "file": f"${{file:{tmp_path}/password}}",
        "property": f"${{file:{tmp_path}/secrets.properties:one}}",
        "dir": f"${{dir:{tmp_path}:password}}",
        "inside": "a${env:RUNNEL_TEST_SECRET}b",
        "other": "${vault:x} $ {env:x}",
    }
    properties = ClientProperties(references)
    monkeypatch.setenv("RUNNEL_TEST_SECRET", SECRET)
    assert {name: properties.text(name) for name in properties} == {
        "env": SECRET,
        "file": SECRET,
        "property": f"{SECRET}1",
        "dir": SECRET,
        "inside": f"a{SECRET}b",
        "other": "${vault:x} $ {env:x}",
    }
    assert dict(pickle.loads(pickle.dumps(properties))) == references
    assert is_reference(references["env"]) and not is_reference(references["inside"])


@pytest.mark.parametrize(
    "reference, message",
    [
        (
            "${env:RUNNEL_TEST_MISSING}",
            "sasl.password: the environment variable RUNNEL_TEST_MISSING is not set",
        ),
        ("${file:/missing/file}", "sasl.password: cannot read /missing/file: No such file"),
        ("${file:FOLDER/a.properties:two}", "has no property two"),
        ("${file:FOLDER/binary}", "is not text"),
        ("${file:FOLDER/large}", "is larger than"),
    ],
)
def test_references_that_lead_nowhere_name_the_property(tmp_path, reference, message):
    (tmp_path / "a.properties").write_text(f"one={SECRET}")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_bytes(b"x" * (1024 * 1024 + 1))
    properties = ClientProperties({"sasl.password": reference.replace("FOLDER", str(tmp_path))})
    with pytest.raises(InvalidProperty, match=message) as refused:
        properties.text("sasl.password")
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "properties, message",
    [
        ({"security.protocol": "TLS"}, "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"sasl.password": SECRET}, "no effect without security.protocol"),
        ({"ssl.ca.location": "x"}, "no effect without security.protocol"),
    ],
)
def test_protection_is_not_silently_off(properties, message):
    with pytest.raises(InvalidProperty, match=message) as refused:
        security_of(properties)
    assert SECRET not in str(refused.value)


def test_plaintext_needs_nothing():
    assert security_of(None) is None
    assert security_of({"acks": "all"}) is None
    assert security_of({"security.protocol": "plaintext"}) is None


@given(st.dictionaries(st.sampled_from(sorted(PROPERTIES)), st.just(SECRET)))
def test_no_value_is_shown(given_properties):
    properties = ClientProperties(given_properties)
    texts = [repr(properties), str(properties), f"{properties}"]
    try:
        security = security_of(properties)
        texts.append(repr(security))
    except InvalidProperty as error:
        texts.append(str(error))
    assert not any(SECRET in text for text in texts)
