"""`python -m runnel.gateway`: what `runnel serve` and `runnel gateway` start."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.gateway.options import FAILED, OFF, REPORTS, GatewayOptions, InvalidOption, parse_http_address

if TYPE_CHECKING:
    from runnel.gateway.options import Alerts


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM, Ctrl-C, or the end of the parent process."""
    given = _parser().parse_args(arguments)
    try:
        options = _options(given)
        address = None if given.listen is None else parse_http_address(given.listen)
    except InvalidOption as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    # After the options are checked: the import takes a third of a second.
    from runnel.gateway.process import run

    return run(options, address=address, descriptor=given.fd, log_level=given.log_level)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="runnel gateway", description="The HTTP API and the console of a cluster."
    )
    parser.add_argument("--bootstrap-server", required=True)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--listen", metavar="HOST:PORT")
    where.add_argument("--fd", type=int, help="the descriptor of a listening socket")
    parser.add_argument("--command-config")
    parser.add_argument("--command-property", action="append", default=[])
    parser.add_argument("--allowed-host", action="append", default=[])
    parser.add_argument("--reports", type=Path, default=REPORTS)
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("--role", choices=("ingress", "egress", "both"), default="both")
    parser.add_argument("--tls-cert", type=Path, help="a PEM file; the gateway serves HTTPS")
    parser.add_argument("--tls-key", type=Path, help="a PEM file; default: in the file of the certificate")
    parser.add_argument("--alerts", metavar="FILE|off", help="settings of alerts; default: no receivers")
    parser.add_argument("--log-level", default="warning")
    return parser


def _options(given: argparse.Namespace) -> GatewayOptions:
    from runnel.client.cluster import parse_addresses
    from runnel.client.errors import InvalidProperty
    from runnel.client.properties import ClientProperties

    try:
        parse_addresses(given.bootstrap_server)
        properties = ClientProperties()
        if given.command_config:
            properties = ClientProperties.from_file(os.fspath(given.command_config))
        properties = properties.with_more(ClientProperties.from_assignments(given.command_property))
    except (ValueError, InvalidProperty) as error:
        raise InvalidOption(str(error)) from None
    if given.tls_key is not None and given.tls_cert is None:
        raise InvalidOption("--tls-key needs --tls-cert")
    return GatewayOptions(
        bootstrap=given.bootstrap_server,
        properties=properties,
        allowed_hosts=tuple(given.allowed_host),
        reports=given.reports,
        read_only=given.read_only,
        role=given.role,
        tls_certificate=given.tls_cert,
        tls_key=given.tls_key,
        alerts=_alerts(given.alerts, properties),
    )


def _alerts(given: str | None, properties: Mapping[str, str]) -> "Alerts | None":
    """The rules and receivers of a file; None if alerts are off, or there are no credentials for them."""
    from runnel.gateway.alerts.config import parsed_config, read_config
    from runnel.gateway.sessions import needs_login
    from runnel.observe.alerts.settings import BadAlertSettings

    if given == OFF or (given is None and needs_login(properties)):
        return None
    try:
        return parsed_config({}) if given is None else read_config(given)
    except BadAlertSettings as error:
        raise InvalidOption(f"--alerts: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
