"""`runnel gateway`: the HTTP API and the console of a cluster, without a broker."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap
from runnel.server.cli.serve import Alerts, HttpTlsCert, HttpTlsKey, LogLevel, LogLevelOption

if TYPE_CHECKING:
    from collections.abc import Mapping

HTTP_DEFAULT = "127.0.0.1:8080"


class Role(StrEnum):
    """Parts of the HTTP API, which can be scaled independently."""

    INGRESS = "ingress"
    EGRESS = "egress"
    BOTH = "both"


AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host",
        metavar="NAME",
        help="A host name of the gateway, in addition to localhost and IP addresses. Repeatable.",
    ),
]
RoleOption = Annotated[
    Role, typer.Option("--role", help="Serve publishing only (ingress), everything else (egress), or both.")
]


def gateway(
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    http: Annotated[
        str, typer.Option("--http", metavar="HOST:PORT", help="Listener address; port 0 picks a free port.")
    ] = HTTP_DEFAULT,
    read_only: Annotated[bool, typer.Option("--read-only", help="Reject all changes.")] = False,
    reports: Annotated[
        Path | None,
        typer.Option(
            "--reports", metavar="DIR", help="Directory with reports of pipelines. Default: .runnel/reports."
        ),
    ] = None,
    allowed_hosts: AllowedHosts = None,
    role: RoleOption = Role.BOTH,
    tls_cert: HttpTlsCert = None,
    tls_key: HttpTlsKey = None,
    alerts: Alerts = None,
    log_level: LogLevelOption = LogLevel.WARNING,
) -> None:
    """Run the HTTP API and the console of a cluster until Ctrl-C or SIGTERM.

    If the client properties have SASL but no credentials, users log in with their own.

    Example: runnel gateway -b 127.0.0.1:9092

    Example: runnel gateway -b 127.0.0.1:9092 --role ingress --http 0.0.0.0:8081

    Example: runnel gateway -b broker:9093 --command-config client.properties --http 0.0.0.0:8080 --read-only
    """
    import os
    import sys

    from runnel.server.cli.connecting import client_properties

    command = [sys.executable, "-m", "runnel.gateway", "--bootstrap-server", bootstrap, "--listen", http]
    command += ["--log-level", log_level]
    command += [part for name in allowed_hosts or () for part in ("--allowed-host", name)]
    if reports is not None:
        command += ["--reports", str(reports)]
    if read_only:
        command.append("--read-only")
    command += ["--role", role]
    for name, value in (("--alerts", alerts), ("--tls-cert", tls_cert), ("--tls-key", tls_key)):
        if value is not None:
            command += [name, str(value)]
    properties = client_properties()
    if properties:
        command += ["--command-config", f"/dev/fd/{_as_descriptor(properties)}"]
    sys.stdout.flush()
    os.execv(sys.executable, command)


def _as_descriptor(properties: "Mapping[str, str]") -> int:
    """An unnamed file that the next program inherits: command-line arguments are visible to all users."""
    import os
    import tempfile

    with tempfile.TemporaryFile() as file:
        file.write(
            "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items()).encode("ascii")
        )
        file.flush()
        file.seek(0)
        descriptor = os.dup(file.fileno())
    os.set_inheritable(descriptor, True)
    return descriptor


def _escaped(value: str) -> str:
    """A value in a properties file of Java."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    text = f"\\{text}" if text.startswith(" ") else text
    return "".join(
        letter if 32 <= ord(letter) < 127 else "".join(f"\\u{unit:04x}" for unit in _utf16(letter))
        for letter in text
    )


def _utf16(letter: str) -> list[int]:
    data = letter.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[at : at + 2]) for at in range(0, len(data), 2)]
