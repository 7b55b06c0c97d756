"""The SASL exchange as a conversation: what is sent, and what a broker's answers lead to."""

from collections.abc import Sequence

import pytest

from runnel.client.authentication import authenticate
from runnel.client.errors import AuthenticationFailed
from runnel.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from runnel.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from runnel.model.errors import ErrorCode
from runnel.security.sasl_client import Credentials, client_mechanism
from runnel.security.sasl_login import RENEWAL_MIN_S, renewal_s
from runnel.wire import Request, Response

ANNA = Credentials("anna", "hunter2")
ACCEPTED = SaslHandshakeResponse(mechanisms=["PLAIN"])


def talk(
    mechanism: str, answers: Sequence[Response], credentials: Credentials = ANNA
) -> tuple[int, list[Request]]:
    """The lifetime of the session, and what the client sent."""
    steps = authenticate("h:1", mechanism, client_mechanism(mechanism, credentials, "nonce"))
    sent = [next(steps)]
    for answer in answers:
        try:
            sent.append(steps.send(answer))
        except StopIteration as end:
            return end.value, sent
    raise AssertionError("the exchange is not complete")


def token(data: bytes = b"", lifetime_ms: int = 0) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_message=None, auth_bytes=data, session_lifetime_ms=lifetime_ms)


def failed(error: ErrorCode, message: str | None) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=error.code, error_message=message, auth_bytes=b"")


def test_plain():
    lifetime_ms, sent = talk("PLAIN", [ACCEPTED, token(lifetime_ms=3000)])
    assert lifetime_ms == 3000
    assert sent == [
        SaslHandshakeRequest(mechanism="PLAIN"),
        SaslAuthenticateRequest(auth_bytes=b"\0anna\0hunter2"),
    ]


@pytest.mark.parametrize(
    "answers, message",
    [
        (
            [SaslHandshakeResponse(33, ["SCRAM-SHA-256"])],
            "h:1 does not accept sasl.mechanism=PLAIN: it accepts SCRAM",
        ),
        ([SaslHandshakeResponse(34, [])], "h:1 does not use SASL: set security.protocol"),
        ([SaslHandshakeResponse(-1, [])], "UNKNOWN_SERVER_ERROR"),
        (
            [ACCEPTED, failed(ErrorCode.SASL_AUTHENTICATION_FAILED, "Invalid user")],
            r"h:1 .*: Invalid user \(SASL_",
        ),
        ([ACCEPTED, failed(ErrorCode.SASL_AUTHENTICATION_FAILED, None)], "sasl authentication failed"),
    ],
)
def test_refusals(answers, message):
    with pytest.raises(AuthenticationFailed, match=message) as refused:
        talk("PLAIN", answers)
    assert not refused.value.retriable
    assert "hunter2" not in str(refused.value)


def test_a_server_that_does_not_know_the_password_is_not_trusted():
    first = token(b"r=nonceMORE,s=c2FsdA==,i=4096")
    with pytest.raises(AuthenticationFailed, match=r"not to be trusted.*signature"):
        talk("SCRAM-SHA-256", [ACCEPTED, first, token(b"v=d3Jvbmc=")])
    with pytest.raises(AuthenticationFailed, match=r"not to be trusted.*iterations"):
        talk("SCRAM-SHA-256", [ACCEPTED, token(b"r=nonceMORE,s=c2FsdA==,i=2000000000")])


def test_a_server_cannot_keep_a_client_busy():
    with pytest.raises(AuthenticationFailed, match="does not complete"):
        talk("OAUTHBEARER", [ACCEPTED, *(token(b"{}") for _ in range(100))], Credentials(token="t"))


def test_a_refused_token_is_reported_at_the_end():
    answers = [
        ACCEPTED,
        token(b'{"status":"invalid_token"}'),
        failed(ErrorCode.SASL_AUTHENTICATION_FAILED, "expired"),
    ]
    with pytest.raises(AuthenticationFailed, match="expired"):
        talk("OAUTHBEARER", answers, Credentials(token="t"))


@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.999])
def test_a_session_is_renewed_before_it_ends(fraction):
    after_s = renewal_s(60_000, fraction)
    assert after_s is not None and 51 <= after_s <= 57
    assert renewal_s(0, fraction) is None
    # Brokers refuse to authenticate a connection more than once a second.
    assert renewal_s(500, fraction) == RENEWAL_MIN_S
