"""Why a TLS connection failed, and which property decides it."""

import re
import ssl

from runnel.client.errors import ClientError, NoBrokerAvailable, TlsFailed

_NOT_TLS = frozenset(
    ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")
)
_CERTIFICATE_ALERT = re.compile("ALERT.*CERTIFICATE|CERTIFICATE.*REQUIRED|ALERT_UNKNOWN_CA|HANDSHAKE_FAILURE")
_WRONG_HOST = (62, 64)
"""OpenSSL's codes for a certificate of another host name or address."""


def tls_error(address: str, host: str, error: OSError) -> ClientError:
    """Why a TLS handshake failed, and which property decides it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _WRONG_HOST:
            return TlsFailed(
                f"the certificate of {address} is not for {host!r}: connect by a name that is in it, or set "
                "ssl.endpoint.identification.algorithm to nothing if you do not need this check"
            )
        return TlsFailed(
            f"the certificate of {address} was not verified ({error.verify_message}): is its CA in "
            "ssl.truststore.location (or ssl.ca.location)?"
        )
    if isinstance(error, ssl.SSLError) and error.reason in _NOT_TLS:
        return TlsFailed(
            f"{address} does not use TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or use the "
            "port of its TLS listener"
        )
    alert = alert_text(error)
    if alert is not None:
        return TlsFailed(f"TLS with {address} failed: {alert}")
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        reason = _words(error.reason or str(error))
        return TlsFailed(f"TLS with {address} failed: {reason}; see ssl.enabled.protocols")
    return NoBrokerAvailable(
        address, "closed the connection during the TLS handshake; is it a TLS listener? See security.protocol"
    )


def alert_text(error: BaseException | None) -> str | None:
    """What it means that the broker refused the certificate of the client, or the lack of one."""
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    if reason is None or not _CERTIFICATE_ALERT.search(reason):
        return None
    return (
        f"the broker requires a certificate of the client, or did not accept it ({_words(reason)}): see "
        "ssl.keystore.location (or ssl.certificate.location)"
    )


def _words(reason: str) -> str:
    return reason.lower().replace("_", " ")
