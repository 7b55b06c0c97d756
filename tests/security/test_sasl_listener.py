"""Authentication over real sockets: what a client receives in every state of its connection."""

import pytest

from runnel.messages.api_versions import ApiVersionsRequest
from runnel.messages.create_delegation_token import CreateDelegationTokenRequest
from runnel.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from runnel.messages.describe_delegation_token import DescribeDelegationTokenRequest
from runnel.messages.expire_delegation_token import ExpireDelegationTokenRequest
from runnel.messages.metadata import MetadataRequest
from runnel.messages.sasl_authenticate import SaslAuthenticateRequest
from runnel.messages.sasl_handshake import SaslHandshakeRequest
from runnel.security.sasl_client import Credentials
from runnel.security.scram import base64
from tests.security.sasl_node import PASSWORDS, Caller, Closed, sasl_node

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
REFUSAL = "Authentication failed during authentication due to invalid credentials with SASL mechanism "


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with sasl_node(str(tmp_path_factory.mktemp("sasl"))) as node:
        yield node


@pytest.fixture
def caller(node):
    with Caller(node.ports["SASL_PLAINTEXT"]) as caller:
        yield caller


def assert_closed(caller: Caller) -> None:
    with pytest.raises(Closed):
        caller.receive()


def logged_in(caller: Caller, user: str = "bob", mechanism: str = "SCRAM-SHA-256") -> None:
    assert caller.log_in(mechanism, Credentials(user, PASSWORDS[user])).error_code == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_user_with_the_right_password_is_served(caller, mechanism) -> None:
    assert caller.versions().error_code == 0
    assert caller.handshake(mechanism).mechanisms == MECHANISMS
    response = caller.log_in(mechanism, Credentials("bob", "bob-secret"), handshakes=False)
    assert (response.error_code, response.error_message, response.session_lifetime_ms) == (0, None, 0)
    assert caller.call(MetadataRequest()).brokers


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "bob", "mallory"])
def test_every_wrong_credential_is_answered_alike(node, mechanism, user) -> None:
    with Caller(node.ports["SASL_PLAINTEXT"]) as caller:
        response = caller.log_in(mechanism, Credentials(user, "wrong"))
        assert (response.error_code, response.error_message) == (58, REFUSAL + mechanism)
        assert_closed(caller)


def test_an_unknown_user_takes_as_many_messages_of_the_same_length(node) -> None:
    def sizes(user: str) -> list[int]:
        with Caller(node.ports["SASL_PLAINTEXT"]) as caller:
            caller.handshake("SCRAM-SHA-512")
            first = caller.authenticate(f"n,,n={user},r=client".encode())
            nonce = bytes(first.auth_bytes).split(b",")[0]
            last = caller.authenticate(b"c=biws," + nonce + b",p=" + b"A" * 88)
            assert last.error_code == 58
            return [len(first.auth_bytes), len(last.error_message or "")]

    # A user of Kafka's tools has a salt of 26 characters; that of the test has 16.
    known, unknown = sizes("bob"), sizes("eve")
    assert [known[0] + 12, known[1]] == unknown


def test_an_unsupported_mechanism_is_answered_with_the_supported_ones(caller) -> None:
    response = caller.handshake("GSSAPI")
    assert (response.error_code, response.mechanisms) == (33, MECHANISMS)
    assert_closed(caller)


def test_version_0_of_the_handshake_is_followed_by_bare_tokens(caller) -> None:
    caller.handshake("PLAIN", version=0)
    caller.send(b"\0bob\0bob-secret")
    assert caller.receive() == b""
    assert caller.call(MetadataRequest()).brokers


def test_a_failure_of_a_bare_token_is_only_a_closed_connection(caller) -> None:
    caller.handshake("PLAIN", version=0)
    caller.send(b"\0alice\0wrong")
    assert_closed(caller)


def test_a_second_api_versions_is_not_answered(caller) -> None:
    caller.versions()
    with pytest.raises(Closed):
        caller.versions()


def test_an_unknown_version_of_api_versions_may_be_repeated(caller) -> None:
    for _ in range(2):
        caller.send(
            caller.frame(ApiVersionsRequest("test", "1"), 3).replace(b"\0\x12\0\x03", b"\0\x12\0\x63")
        )
        assert caller.receive()[4:6] == b"\0\x23"
    assert caller.versions().error_code == 0
    logged_in(caller)


def test_a_request_instead_of_a_token_is_answered_in_its_own_form(caller) -> None:
    caller.handshake("PLAIN")
    assert caller.call(ApiVersionsRequest("test", "1"), 3).error_code == 34
    assert_closed(caller)


def test_requests_behind_a_token_are_served_as_the_user(caller) -> None:
    """They are not served before the password is checked, which takes a thread."""
    caller.handshake("PLAIN")
    caller.send(
        caller.frame(SaslAuthenticateRequest(b"\0bob\0bob-secret"), 2), caller.frame(MetadataRequest(), 12)
    )
    caller.receive()
    assert caller.decoded(MetadataRequest(), 12, caller.receive()).brokers


def test_requests_behind_a_wrong_password_are_not_served(caller) -> None:
    caller.handshake("PLAIN")
    caller.send(
        caller.frame(SaslAuthenticateRequest(b"\0alice\0wrong"), 2), caller.frame(MetadataRequest(), 12)
    )
    assert caller.decoded(SaslAuthenticateRequest(), 2, caller.receive()).error_code == 58
    assert_closed(caller)


def test_requests_behind_a_handshake_are_not_served(caller) -> None:
    caller.send(caller.frame(SaslHandshakeRequest("PLAIN"), 1), caller.frame(MetadataRequest(), 12))
    assert caller.decoded(SaslHandshakeRequest(), 1, caller.receive()).error_code == 0
    # Metadata cannot carry an error.
    assert_closed(caller)


def test_a_large_frame_before_authentication_closes_the_connection(caller) -> None:
    caller._socket.sendall((64 * 1024 + 1).to_bytes(4, "big"))
    assert_closed(caller)


def test_after_authentication_sasl_requests_are_illegal(caller) -> None:
    logged_in(caller)
    assert caller.authenticate(b"").error_code == 34
    assert caller.call(MetadataRequest()).brokers


def test_listeners_without_sasl_answer_that(node) -> None:
    with Caller(node.ports["PLAINTEXT"]) as caller:
        assert caller.handshake("PLAIN").error_code == 34
        assert caller.authenticate(b"").error_code == 34
        assert caller.call(MetadataRequest()).brokers


def test_re_authentication_keeps_the_user(caller) -> None:
    logged_in(caller)
    logged_in(caller)
    assert caller.call(MetadataRequest()).brokers
    # At most once a second.
    assert caller.handshake("SCRAM-SHA-256").error_code == 34
    assert caller.call(MetadataRequest()).brokers


def test_re_authentication_as_another_user_fails(caller) -> None:
    logged_in(caller, "alice", "PLAIN")
    assert caller.log_in("PLAIN", Credentials("bob", "bob-secret")).error_code == 58
    assert_closed(caller)


def test_re_authentication_by_another_mechanism_closes_the_connection(caller) -> None:
    logged_in(caller)
    caller.handshake("PLAIN")
    with pytest.raises(Closed):
        caller.authenticate(b"\0bob\0bob-secret")


def test_a_delegation_token_authenticates_its_owner(node, caller) -> None:
    logged_in(caller)
    created = caller.call(CreateDelegationTokenRequest(max_lifetime_ms=60_000))
    assert (created.error_code, created.principal_name) == (0, "bob")
    token = Credentials(created.token_id, base64(bytes(created.hmac)), is_token=True)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        with Caller(node.ports["SASL_PLAINTEXT"]) as other:
            response = other.log_in(mechanism, token)
            assert response.error_code == 0
            assert 0 < response.session_lifetime_ms <= 60_000
            # It creates no further tokens.
            assert other.call(CreateDelegationTokenRequest()).error_code == 64
    assert [each.token_id for each in caller.call(DescribeDelegationTokenRequest(None)).tokens] == [
        created.token_id
    ]
    assert caller.call(ExpireDelegationTokenRequest(bytes(created.hmac), -1)).error_code == 0
    with Caller(node.ports["SASL_PLAINTEXT"]) as other:
        assert other.log_in("SCRAM-SHA-256", token).error_code == 58


def test_tokens_need_an_authenticated_client(node) -> None:
    with Caller(node.ports["PLAINTEXT"]) as caller:
        assert caller.call(CreateDelegationTokenRequest()).error_code == 64
        assert caller.call(DescribeDelegationTokenRequest()).error_code == 64


def test_secrets_are_not_described(caller) -> None:
    logged_in(caller)
    broker = DescribeConfigsResource(4, "1", None)
    (result,) = caller.call(DescribeConfigsRequest([broker], True)).results
    values = {config.name: (config.value, config.is_sensitive) for config in result.configs}
    for name in (
        "listener.name.sasl_plaintext.plain.sasl.jaas.config",
        "sasl.jaas.config",
        "delegation.token.secret.key",
    ):
        assert values[name] == (None, True)
    assert "alice-secret" not in repr(result)
