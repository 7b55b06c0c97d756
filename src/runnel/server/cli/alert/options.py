"""The settings of alerts on the command line."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from runnel.gateway.alerts.receivers import Receiver
    from runnel.observe.alerts.settings import AlertSettings

AlertsConfig = Annotated[
    Path | None,
    typer.Option(
        "--alerts-config",
        envvar="RUNNEL_ALERTS_CONFIG",
        metavar="FILE",
        help="Settings of alerts in properties format: receivers, thresholds, times.",
    ),
]


def read_alerts_config(path: Path | None) -> "tuple[AlertSettings, dict[str, Receiver]]":
    """The settings of the file, or the defaults."""
    from runnel.gateway.alerts.config import parsed_config, read_config
    from runnel.observe.alerts.settings import BadAlertSettings
    from runnel.server.cli.output import CommandError

    try:
        return parsed_config({}) if path is None else read_config(str(path))
    except BadAlertSettings as error:
        raise CommandError(str(error)) from None
