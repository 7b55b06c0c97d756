"""The client's side of SASL, by the examples of the RFCs."""

import pytest

from runnel.security.sasl_client import Credentials, SaslFailed, client_mechanism

NONCE = "rOprNGfwEbeRWgbNEkqO"
BOTH_NONCES = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = f"r={BOTH_NONCES},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()


def scram(credentials=None):
    return client_mechanism("SCRAM-SHA-256", credentials or Credentials("user", "pencil"), NONCE)


def test_scram_follows_the_example_of_rfc_7677() -> None:
    client = scram()
    assert client.first() == f"n,,n=user,r={NONCE}".encode()
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert client.respond(SERVER_FIRST) == f"c=biws,r={BOTH_NONCES},p={proof}".encode()
    assert client.respond(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


def test_a_server_without_the_verifier_is_detected() -> None:
    client = scram()
    client.respond(SERVER_FIRST)
    with pytest.raises(SaslFailed, match="signature"):
        client.respond(b"v=AAAATRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"\xff\xfe",
        b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode(),
        f"r={BOTH_NONCES},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1".encode(),
        f"r={BOTH_NONCES},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=100000000".encode(),
        f"r={BOTH_NONCES},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=many".encode(),
        f"r={BOTH_NONCES},s=%%%,i=4096".encode(),
        f"r={BOTH_NONCES},i=4096".encode(),
        f"s=AAAA,r={BOTH_NONCES},i=4096".encode(),
    ],
)
def test_a_bad_challenge_gets_no_proof(challenge) -> None:
    with pytest.raises(SaslFailed):
        scram().respond(challenge)


def test_a_token_is_announced_and_special_characters_are_escaped() -> None:
    assert scram(Credentials("a=b,c", "x", is_token=True)).first() == (
        f"n,,n=a=3Db=2Cc,r={NONCE},tokenauth=true".encode()
    )


def test_plain_is_one_message() -> None:
    client = client_mechanism("PLAIN", Credentials("alice", "sécret"), "")
    assert client.first() == "\0alice\0sécret".encode()
    assert client.respond(b"") is None


def test_oauthbearer_answers_the_reason_of_a_failure() -> None:
    client = client_mechanism("OAUTHBEARER", Credentials(token="a.b.c", extensions={"team": "data"}), "")
    assert client.first() == b"n,,\x01auth=Bearer a.b.c\x01team=data\x01\x01"
    assert client.respond(b'{"status":"invalid_token"}') == b"\x01"
    assert client.respond(b"") is None


def test_an_unknown_mechanism_is_refused() -> None:
    with pytest.raises(ValueError, match="GSSAPI"):
        client_mechanism("GSSAPI", Credentials(), "")


def test_secrets_are_not_shown() -> None:
    shown = repr(Credentials("alice", "pa55", token="t0ken", extensions={"a": "e4t"}))
    assert "alice" in shown
    assert not any(secret in shown for secret in ("pa55", "t0ken", "e4t"))
