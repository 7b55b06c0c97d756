"""Credentials in the syntax of kafka-storage.sh."""

import pytest

from runnel.security.scram import base64, salted_password, verifier_of
from runnel.security.scram_options import InvalidScramOption, read_scram_option


def expected(algorithm: str, password: str, salt: bytes, iterations: int = 4096):
    return verifier_of(algorithm, salted_password(algorithm, password, salt, iterations), salt, iterations)


@pytest.mark.parametrize(
    ("text", "verifier"),
    [
        ("SCRAM-SHA-256=[name=alice,password=secret]", expected("sha256", "secret", b"random")),
        (
            'SCRAM-SHA-512=[ name="alice", iterations=8192, password="a, ]b" ]',
            expected("sha512", "a, ]b", b"random", 8192),
        ),
        ("SCRAM-SHA-256=[name=alice,password=secret,salt=c2FsdA==]", expected("sha256", "secret", b"salt")),
        (
            f'SCRAM-SHA-256=[name=alice,salt="c2FsdA==",saltedpassword="'
            f'{base64(salted_password("sha256", "secret", b"salt", 4096))}"]',
            expected("sha256", "secret", b"salt"),
        ),
    ],
)
def test_credentials_are_understood(text, verifier) -> None:
    option = read_scram_option(text, b"random")
    assert (option.name, option.mechanism) == ("alice", text[:13])
    assert option.verifier == verifier


@pytest.mark.parametrize(
    "text",
    [
        "",
        "alice",
        "SCRAM-SHA-1=[name=alice,password=secret]",
        "SCRAM-SHA-256=[password=secret]",
        "SCRAM-SHA-256=[name=alice]",
        "SCRAM-SHA-256=[name=alice,password=]",
        "SCRAM-SHA-256=[name=alice,password=secret,password=secret]",
        "SCRAM-SHA-256=[name=alice,password=secret,colour=blue]",
        "SCRAM-SHA-256=[name=alice,password=secret,iterations=1]",
        "SCRAM-SHA-256=[name=alice,password=secret,iterations=99999]",
        "SCRAM-SHA-256=[name=alice,password=secret,salt=%]",
        "SCRAM-SHA-256=[name=alice,saltedpassword=c2VjcmV0]",
        'SCRAM-SHA-256=[name=alice,password="secret]',
    ],
)
def test_other_arguments_are_refused_without_repeating_them(text) -> None:
    with pytest.raises(InvalidScramOption) as refused:
        read_scram_option(text, b"random")
    assert "secret" not in str(refused.value)
