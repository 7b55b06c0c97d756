"""Lines of sasl.jaas.config, as Kafka's documentation writes them."""

import pytest

from runnel.security.jaas import InvalidJaas, read_jaas
from runnel.security.sasl_client import Credentials

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def test_a_server_line_has_users_and_the_identity_of_the_broker() -> None:
    line = read_jaas(
        f"""{PLAIN} required
            // of the brokers
            username="admin" password="admin-secret"
            user_admin="admin-secret" /* of a
            client */ user_alice="alice;=\\"\\\\\\101";""",
        "PLAIN",
    )
    assert line.users == {"admin": "admin-secret", "alice": 'alice;="\\A'}
    assert line.credentials() == Credentials("admin", "admin-secret")


def test_a_token_and_extensions() -> None:
    line = read_jaas(f'{SCRAM} required username="id" password=aGV5 tokenauth="true";', "SCRAM-SHA-512")
    assert line.credentials() == Credentials("id", "aGV5", is_token=True)
    line = read_jaas(f'{OAUTH} required token="a.b.c" extension_team="x";', "OAUTHBEARER")
    assert line.credentials() == Credentials(token="a.b.c", extensions={"team": "x"})


def test_a_line_without_options_names_no_user() -> None:
    assert read_jaas(f"{SCRAM} Required;", "SCRAM-SHA-256").credentials() is None


@pytest.mark.parametrize(
    ("text", "mechanism"),
    [
        ("", "PLAIN"),
        (PLAIN, "PLAIN"),
        (f"{PLAIN} maybe;", "PLAIN"),
        (f"{PLAIN} required", "PLAIN"),
        (f"{PLAIN} required password;", "PLAIN"),
        (f"{PLAIN} required password=;", "PLAIN"),
        (f'{PLAIN} required password="secret;', "PLAIN"),
        (f"{PLAIN} required password='secret';", "PLAIN"),
        (f"{PLAIN} required; {PLAIN} required;", "PLAIN"),
        (f"{PLAIN} required;", "SCRAM-SHA-256"),
        ("com.sun.security.auth.module.JndiLoginModule required;", "PLAIN"),
        ("com.sun.security.auth.module.Krb5LoginModule required;", "GSSAPI"),
    ],
)
def test_other_lines_are_refused_without_repeating_them(text, mechanism) -> None:
    with pytest.raises(InvalidJaas) as refusal:
        read_jaas(text, mechanism)
    assert "secret" not in str(refusal.value)


def test_passwords_are_not_shown() -> None:
    assert "hush" not in repr(read_jaas(f'{PLAIN} required username=a password="hush";', "PLAIN"))
