"""Certificates, distinguished names and mapping rules, compared with Java's and Kafka's own classes."""

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.security.der import BadEncoding, elements, object_id_text, read_element
from runnel.security.distinguished_name import rfc2253
from runnel.security.principal_mapping import BadRules, NoRule, PrincipalMapping
from runnel.security.x509 import BadCertificate, read_certificate
from tools.certificates import CertificateAuthority, distinguished_name


def rows(file: str) -> list[list[str]]:
    text = (Path(__file__).parent / file).read_text("utf-8")
    return [line.split("\t") for line in text.split("\n") if line and not line.startswith("#")]


@pytest.mark.parametrize(("encoded", "text"), rows("distinguished-names.txt"))
def test_a_distinguished_name_is_written_as_by_java(encoded: str, text: str) -> None:
    written = rfc2253(bytes.fromhex(encoded)).replace("\r", "\\r").replace("\n", "\\n")
    assert written == text


@pytest.mark.parametrize(("rules", "distinguished_name", "expected"), rows("principal-mapping.txt"))
def test_rules_map_as_those_of_kafka(rules: str, distinguished_name: str, expected: str) -> None:
    try:
        outcome = "=" + PrincipalMapping(rules).name_of(distinguished_name)
    except BadRules:
        outcome = "!bad"
    except NoRule:
        outcome = "!none"
    assert outcome == expected


KINDS = st.sampled_from(
    [NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.LOCALITY_NAME]
)
PARTS = st.lists(st.tuples(KINDS, st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)), max_size=5)


@given(PARTS)
def test_no_two_names_have_the_same_text(parts) -> None:
    """cryptography's parser of RFC 4514 is the inverse, where it accepts what Java writes."""
    encoded = x509.Name([x509.NameAttribute(kind, value) for kind, value in parts])
    text = rfc2253(encoded.public_bytes())
    try:
        parsed = x509.Name.from_rfc4514_string(text)
    except ValueError:
        return
    assert parsed == encoded


def test_what_a_certificate_says() -> None:
    ca = CertificateAuthority()
    issued = ca.issue(
        distinguished_name("broker-1", C="DE", O="Example, Inc."), ("a.example", "127.0.0.1", "::1")
    )
    read, own = read_certificate(issued.der()), issued.certificate
    assert rfc2253(read.subject) == "CN=broker-1,O=Example\\, Inc.,C=DE"
    assert read.issuer == ca.certificate.subject.public_bytes()
    assert read.not_before_s == own.not_valid_before_utc.timestamp()
    assert read.not_after_s == own.not_valid_after_utc.timestamp()
    assert read.alternative_names == {
        b"\x82\x09a.example",
        b"\x87\x04\x7f\0\0\1",
        b"\x87\x10" + bytes(15) + b"\1",
    }
    assert read_certificate(ca.issue("plain", ()).der()).alternative_names == frozenset()


def test_the_year_2050_and_later() -> None:
    issued = CertificateAuthority().issue("distant", ends_days=30 * 365)
    read = read_certificate(issued.der())
    assert read.not_after_s == issued.certificate.not_valid_after_utc.timestamp()


CERTIFICATE = CertificateAuthority().issue("broker").der()


@settings(max_examples=300)
@given(st.integers(0, len(CERTIFICATE) - 1), st.integers(0, 255), st.integers(0, len(CERTIFICATE)))
def test_a_damaged_certificate_is_an_error_and_no_bug(position: int, byte: int, length: int) -> None:
    damaged = bytearray(CERTIFICATE)
    damaged[position] = byte
    for data in (bytes(damaged), CERTIFICATE[:length]):
        try:
            rfc2253(read_certificate(data).subject)
        except BadCertificate:
            continue


@pytest.mark.parametrize(
    "data", [b"", b"\x30", b"\x30\x05abc", b"\x30\x80", b"\x30\x85\1\1\1\1\1", b"\x1f\x81\1"]
)
def test_malformed_elements_are_refused(data: bytes) -> None:
    with pytest.raises(BadEncoding):
        read_element(data)


def test_elements_and_object_ids() -> None:
    assert [each.content for each in elements(b"\x04\x01a\x04\x81\x01b")] == [b"a", b"b"]
    assert object_id_text(bytes.fromhex("2a864886f70d010901")) == "1.2.840.113549.1.9.1"
    for content in (b"", b"\x80"):
        with pytest.raises(BadEncoding):
            object_id_text(content)
