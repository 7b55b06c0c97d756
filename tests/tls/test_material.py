"""Key material in every format; what cannot be used is refused with its setting, and without its secrets."""

import shutil
import ssl
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from runnel.tls.context import check_pair, client_context, server_context
from runnel.tls.endpoint import TlsEndpoint
from runnel.tls.material import load_material
from runnel.tls.settings import BadTls, TlsSettings
from tools.certificates import CertificateAuthority, distinguished_name

CA = CertificateAuthority()
NODE = CA.issue(distinguished_name("broker-1", O="Example"))
OTHER = CA.issue("broker-2")
SECRET = "do not show"


def pem(**changes: str | None) -> TlsSettings:
    """Inline settings with changes."""
    settings = TlsSettings(
        keystore_type="PEM",
        keystore_key=NODE.key_pem().decode(),
        keystore_certificate_chain=NODE.chain_pem().decode(),
        truststore_type="PEM",
        truststore_certificates=CA.pem(),
    )
    return replace(settings, **changes)  # type: ignore[arg-type]


def made(settings: TlsSettings) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    material = load_material(settings, time.time())
    return server_context(settings, material), client_context(settings, material)


def version_of(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> str | None:
    """The version of TLS after a handshake."""
    ends = TlsEndpoint(server), TlsEndpoint(client, is_server=False, server_name=host)
    while not (ends[1].handshake() and ends[0].is_established):
        ends[0].received(ends[1].output())
        ends[0].handshake()
        ends[1].received(ends[0].output())
    return ends[0].version


def test_inline_pem() -> None:
    assert version_of(*made(pem())) == "TLSv1.3"
    assert version_of(*made(pem()), host="127.0.0.1") == "TLSv1.3"


@pytest.mark.parametrize("password", [None, SECRET])
def test_pem_files(tmp_path: Path, password: str | None) -> None:
    settings = TlsSettings(
        keystore_type="pem",
        keystore_location=NODE.write(tmp_path / "node.pem", password.encode() if password else None),
        key_password=password,
        truststore_type="PEM",
        truststore_location=CA.write(tmp_path / "ca.pem"),
    )
    assert version_of(*made(settings)) == "TLSv1.3"
    assert settings.files == (str(tmp_path / "node.pem"), str(tmp_path / "ca.pem"))


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_pkcs12_files_also_under_the_name_of_jks(tmp_path: Path, kind: str) -> None:
    (tmp_path / "node.p12").write_bytes(NODE.pkcs12(SECRET.encode()))
    settings = pem(
        keystore_type=kind,
        keystore_key=None,
        keystore_certificate_chain=None,
        keystore_location=str(tmp_path / "node.p12"),
        keystore_password=SECRET,
    )
    material = load_material(settings, time.time())
    assert material.chain[0].encoded == NODE.der()
    assert len(material.chain) == 2
    assert version_of(*made(settings)) == "TLSv1.3"


@pytest.mark.skipif(not shutil.which("keytool"), reason="needs Java's keytool")
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_stores_of_javas_keytool(tmp_path: Path, kind: str) -> None:
    key_password = "another one" if kind == "JKS" else SECRET
    settings = stores_of_keytool(tmp_path, kind, key_password)
    server, _ = made(settings)
    material = load_material(settings, time.time())
    assert [each.encoded for each in material.trusted] == [
        load_material(pem(), time.time()).trusted[0].encoded
    ]
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.load_cert_chain(NODE.write(tmp_path / "client.pem"))
    assert version_of(server, client) == "TLSv1.3"
    with pytest.raises(BadTls, match=r"ssl\.keystore\.location (has another|.*its) password"):
        load_material(replace(settings, keystore_password="wrong"), time.time())
    if kind == "JKS":
        with pytest.raises(BadTls, match=r"set ssl\.key\.password"):
            load_material(replace(settings, key_password=None), time.time())


def stores_of_keytool(tmp_path: Path, kind: str, key_password: str) -> TlsSettings:
    store, trust = tmp_path / "node.store", tmp_path / "trust.store"
    ca = CA.write(tmp_path / "ca.pem")

    def keytool(*arguments: str) -> None:
        command = [
            "keytool",
            "-J-XX:TieredStopAtLevel=1",
            "-storetype",
            kind,
            "-storepass",
            SECRET,
            *arguments,
        ]
        subprocess.run(command, check=True, capture_output=True)

    keytool(
        *(
            "-genkeypair",
            "-alias",
            "node",
            "-keystore",
            str(store),
            "-keyalg",
            "EC",
            "-keypass",
            key_password,
        ),
        *("-dname", "CN=java", "-ext", "san=dns:localhost", "-validity", "9"),
    )
    keytool("-importcert", "-noprompt", "-alias", "ca", "-keystore", str(trust), "-file", ca)
    return TlsSettings(
        keystore_type=kind,
        keystore_location=str(store),
        keystore_password=SECRET,
        key_password=key_password,
        truststore_type=kind,
        truststore_location=str(trust),
        truststore_password=SECRET,
        client_auth="required",
    )


def test_a_pkcs12_file_without_the_package_names_the_conversion(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "node.p12").write_bytes(NODE.pkcs12(b"x"))
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    settings = TlsSettings(keystore_type="PKCS12", keystore_location=str(tmp_path / "node.p12"))
    with pytest.raises(BadTls, match=r"runnel\[security\].*openssl pkcs12 -in"):
        load_material(settings, time.time())


def encrypted(password: str) -> str:
    return NODE.key_pem(password.encode()).decode()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"keystore_key": None}, r"ssl\.keystore\.key is not set"),
        ({"keystore_certificate_chain": None}, r"ssl\.keystore\.certificate\.chain is not set"),
        ({"keystore_key": None, "keystore_certificate_chain": None}, r"ssl\.keystore\.location is not set"),
        ({"keystore_key": "nonsense"}, r"ssl\.keystore\.key has no private key"),
        ({"keystore_certificate_chain": "nonsense"}, "has no certificate"),
        ({"keystore_type": "JKS"}, r"ssl\.keystore\.type is JKS: set it to PEM"),
        ({"truststore_type": "JKS"}, r"ssl\.truststore\.type is JKS: set it to PEM"),
        ({"keystore_location": "/x"}, r"ssl\.keystore\.location and ssl\.keystore\.key are both set"),
        ({"truststore_location": "/x"}, "are both set"),
        ({"truststore_certificates": "nonsense"}, r"ssl\.truststore\.certificates has no certificate"),
        (
            {"truststore_certificates": None, "client_auth": "required"},
            r"ssl\.truststore\.location is not set",
        ),
        ({"keystore_key": OTHER.key_pem().decode()}, "is not that of its certificate"),
        ({"keystore_key": encrypted(SECRET), "key_password": "wrong"}, r"ssl\.key\.password is not"),
        ({"keystore_key": encrypted(SECRET)}, r"ssl\.key\.password is not"),
        ({"protocol": "TLSv1.2", "enabled_protocols": ["TLSv1.3"]}, r"ssl\.protocol is TLSv1.2"),
        ({"cipher_suites": ["TLS_AES_128_GCM_SHA256"]}, "cannot be chosen one by one"),
        ({"cipher_suites": ["TLS_RSA_WITH_RC4_128_MD5"]}, "which OpenSSL does not support"),
        (
            {"cipher_suites": ["ECDHE-RSA-AES128-GCM-SHA256"], "enabled_protocols": ["TLSv1.2"]},
            "permit no connection",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(changes: dict[str, str], complaint: str) -> None:
    with pytest.raises(BadTls, match=complaint) as refused:
        made(pem(**changes))
    assert SECRET not in str(refused.value)
    assert SECRET not in repr(pem(**changes))


@pytest.mark.parametrize(("days", "complaint"), [((-9, -1), "has expired"), ((2, 9), "is not valid yet")])
def test_a_certificate_must_be_valid_now(days: tuple[int, int], complaint: str) -> None:
    issued = CA.issue("broker-1", begins_days=days[0], ends_days=days[1])
    settings = pem(
        keystore_key=issued.key_pem().decode(), keystore_certificate_chain=issued.chain_pem().decode()
    )
    with pytest.raises(BadTls, match=f"ssl.keystore.certificate.chain has a certificate that {complaint}"):
        made(settings)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    absent = TlsSettings(keystore_type="PEM", keystore_location=str(tmp_path / "absent.pem"))
    with pytest.raises(BadTls, match=r"ssl\.keystore\.location: cannot read .*absent\.pem: No such file"):
        load_material(absent, 0)
    for content in (b"", b"garbage", b"\x30\x03abc", b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\1"):
        (tmp_path / "damaged").write_bytes(content)
        damaged = TlsSettings(truststore_location=str(tmp_path / "damaged"), truststore_password=SECRET)
        with pytest.raises(BadTls, match=r"ssl\.truststore\.location (is no|has another|is cut off)"):
            load_material(damaged, 0)
    wrong_type = TlsSettings(keystore_location=NODE.write(tmp_path / "node.pem"))
    with pytest.raises(BadTls, match="is a PEM file, but its type is JKS"):
        load_material(wrong_type, 0)
    with_password = replace(wrong_type, keystore_type="PEM", keystore_password=SECRET)
    with pytest.raises(BadTls, match=r"use ssl\.key\.password"):
        load_material(with_password, 0)


def test_versions_and_suites() -> None:
    client = made(pem())[1]
    only_1_2 = made(pem(enabled_protocols=["TLSv1.2"], protocol="TLS"))[0]  # type: ignore[arg-type]
    assert version_of(only_1_2, client) == "TLSv1.2"
    assert version_of(made(pem(protocol="TLSv1.2"))[0], client) == "TLSv1.2"
    iana = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    chosen = made(pem(enabled_protocols=["TLSv1.2"], cipher_suites=[iana]))[0]  # type: ignore[arg-type]
    assert [each["name"] for each in chosen.get_ciphers() if each["protocol"] == "TLSv1.2"] == [
        "ECDHE-ECDSA-AES256-GCM-SHA384"
    ]
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    only_1_3 = made(pem(enabled_protocols=["TLSv1.3"]))[0]  # type: ignore[arg-type]
    with pytest.raises(ssl.SSLError):
        version_of(only_1_3, old)


def test_names_are_verified_unless_switched_off() -> None:
    server, client = made(pem())
    with pytest.raises(ssl.SSLCertVerificationError):
        version_of(server, client, "elsewhere.example")
    _, trusting = made(pem(endpoint_identification_algorithm=""))
    assert version_of(server, trusting, "elsewhere.example") == "TLSv1.3"


def test_clients_are_verified() -> None:
    server = made(pem(client_auth="required"))[0]
    check_pair(server, made(pem())[1])
    stranger = CertificateAuthority("Strangers").issue("stranger")
    for settings in (
        pem(keystore_key=None, keystore_certificate_chain=None),
        pem(
            keystore_key=stranger.key_pem().decode(),
            keystore_certificate_chain=stranger.chain_pem().decode(),
        ),
    ):
        client = client_context(settings, load_material(settings, time.time()))
        with pytest.raises(BadTls, match="does not accept"):
            check_pair(server, client)
