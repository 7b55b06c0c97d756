"""The settings of TLS, by the names of Kafka's `ssl.*` configs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any


class BadTls(ValueError):
    """TLS cannot be used as configured; the message names the setting, and no secret."""


class ClientAuth(Enum):
    """Whether clients authenticate with certificates."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, repr=False)
class TlsSettings:
    """The settings of one listener, or of one client. Their representation shows no secrets: it has none."""

    keystore_type: str = "JKS"
    keystore_location: str | None = None
    keystore_password: str | None = None
    key_password: str | None = None
    keystore_key: str | None = None
    keystore_certificate_chain: str | None = None
    truststore_type: str = "JKS"
    truststore_location: str | None = None
    truststore_password: str | None = None
    truststore_certificates: str | None = None
    protocol: str = "TLSv1.3"
    enabled_protocols: Sequence[str] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: Sequence[str] = ()
    endpoint_identification_algorithm: str | None = "https"
    client_auth: str = "none"

    @classmethod
    def read(cls, value_of: Callable[[str], Any]) -> "TlsSettings":
        """The settings, of which `value_of` returns each by its name, such as `ssl.client.auth`."""
        return cls(**{each.name: value_of(f"ssl.{each.name.replace('_', '.')}") for each in fields(cls)})

    @property
    def files(self) -> tuple[str, ...]:
        """The files that contain key material."""
        return tuple(filter(None, (self.keystore_location, self.truststore_location)))
