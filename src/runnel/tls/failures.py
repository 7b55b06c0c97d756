"""Why a TLS connection failed, in words for a log."""

import ssl

_IN_WORDS = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not accepted",
    "HTTP_REQUEST": "it sent an HTTP request",
    "NO_SHARED_CIPHER": "no cipher suite is supported by both sides",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it sent no certificate, which is required here",
    "UNSUPPORTED_PROTOCOL": "no version of TLS is supported by both sides",
    "WRONG_VERSION_NUMBER": "what it sent is not TLS",
}


def tls_failure(error: ssl.SSLError) -> str:
    """The reason, without anything that the peer sent."""
    reason = error.reason or ""
    words = _IN_WORDS.get(reason)
    if isinstance(error, ssl.SSLCertVerificationError):
        words = f"{words}: {error.verify_message}"
    elif "_ALERT_" in reason:
        alert = reason.rpartition("_ALERT_")[2].lower().replace("_", " ")
        words = f"it rejected the connection: {alert}"
    return f"TLS failed: {words or reason.lower().replace('_', ' ') or 'the connection was cut off'}"
