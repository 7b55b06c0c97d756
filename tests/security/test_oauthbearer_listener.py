"""OAUTHBEARER over real sockets, with the keys in a file."""

import pytest

from runnel.messages.metadata import MetadataRequest
from runnel.security.sasl_client import Credentials
from runnel.server.layers import BadSettings
from tests.security.sasl_node import Caller, sasl_node
from tools.token_issuer import STRANGER, settings, token, write_keys

MECHANISMS = {"sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-256"}


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    folder = tmp_path_factory.mktemp("oauth")
    trusted = settings(write_keys(folder / "keys.json"))
    with sasl_node(str(folder / "data"), {**MECHANISMS, **trusted}) as node:
        yield node.ports["SASL_PLAINTEXT"]


def test_a_signed_token_is_accepted_for_its_lifetime(port) -> None:
    with Caller(port) as caller:
        response = caller.log_in("OAUTHBEARER", Credentials(token=token()))
        assert response.error_code == 0
        assert 500_000 < response.session_lifetime_ms <= 630_000
        assert caller.call(MetadataRequest()).brokers


def test_a_token_of_another_issuer_is_refused(port) -> None:
    with Caller(port) as caller:
        caller.handshake("OAUTHBEARER")
        first = caller.authenticate(f"n,,\x01auth=Bearer {token(STRANGER)}\x01\x01".encode())
        assert (first.error_code, bytes(first.auth_bytes)) == (0, b'{"status":"invalid_token"}')
        assert caller.authenticate(b"\x01").error_code == 58


@pytest.mark.parametrize("content", [None, "{}", '{"keys": []}'])
def test_without_usable_keys_the_broker_does_not_start(tmp_path, content) -> None:
    keys = tmp_path / "keys.json"
    if content is not None:
        keys.write_text(content)
    with (
        pytest.raises(BadSettings, match=r"jwks\.endpoint\.url cannot be used"),
        sasl_node(str(tmp_path / "data"), {**MECHANISMS, **settings(keys.as_uri())}),
    ):
        pass
