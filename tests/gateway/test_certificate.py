"""HTTPS with a certificate that is replaced while the gateway runs."""

import http.client
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runnel.gateway import certificate
from runnel.gateway.options import GatewayOptions
from tests.gateway.gateways import serving
from tools.certificates import CertificateAuthority, Issued


def replace(path: Path, content: bytes) -> None:
    """As tools that renew certificates do."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    os.replace(new, path)


def eventually(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def test_a_certificate_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(certificate, "CHECK_S", 0.05)
    authority = CertificateAuthority()
    first, second = authority.issue("first"), authority.issue("second")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    replace(chain, first.chain_pem())
    replace(key, first.key_pem())
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE

    def opened() -> http.client.HTTPSConnection:
        connection = http.client.HTTPSConnection("127.0.0.1", visitor.port, context=context, timeout=20)
        connection.connect()
        return connection

    def is_served(issued: Issued) -> bool:
        connection = opened()
        try:
            return connection.sock.getpeercert(binary_form=True) == issued.der()
        finally:
            connection.close()

    with serving(GatewayOptions("127.0.0.1:1", tls_certificate=chain, tls_key=key)) as visitor:
        assert is_served(first)
        before = opened()
        replace(chain, second.chain_pem())
        # The key is not written yet.
        eventually(lambda: "was not changed" in caplog.text)
        assert is_served(first)
        replace(key, second.key_pem())
        eventually(lambda: is_served(second))
        chain.unlink()
        eventually(lambda: caplog.text.count("was not changed") >= 2)
        assert is_served(second)
        before.request("GET", "/livez")
        assert before.getresponse().status == 200
        before.close()
