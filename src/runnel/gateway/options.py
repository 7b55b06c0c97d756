"""What a gateway is started with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runnel.gateway.alerts.receivers import Receiver
    from runnel.observe.alerts.settings import AlertSettings

    Alerts = tuple[AlertSettings, Mapping[str, Receiver]]

FAILED = 1
OFF = "off"
PORT_MAX = 65535
REPORTS = Path(".runnel") / "reports"
"""Where the jobs of pipelines write their reports, by default."""


class InvalidOption(Exception):
    """An option has no meaning; the message is shown to the user."""


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """The cluster, how to connect to it, and what may be done."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict)
    """Client properties by their Kafka names. With SASL but without credentials, users log in."""
    allowed_hosts: tuple[str, ...] = ()
    """Names in the Host header that are accepted beside `localhost`, the machine's name and IP addresses."""
    reports: Path = REPORTS
    """The folder with the reports of pipelines."""
    read_only: bool = False
    """Changes are rejected."""
    role: str = "both"
    """What of the HTTP API is served: ingress, egress or both."""
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    """PEM files; with them the gateway serves HTTPS. The key may be in the file of the certificate."""
    alerts: "Alerts | None" = None
    """The rules and receivers of alerts, if this gateway evaluates them."""


def parse_http_address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT; an IPv6 host is in brackets."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise InvalidOption(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8080")
    return host, int(port)
