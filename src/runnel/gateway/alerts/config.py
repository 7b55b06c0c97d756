"""The file with the settings of alerts: properties, see `observe/alerts/settings.py` and `receivers.py`."""

from collections.abc import Mapping

from runnel.client.errors import InvalidProperty
from runnel.client.references import read_text
from runnel.gateway.alerts.receivers import Receiver, receivers_of
from runnel.model.properties import BadProperties, parse_properties
from runnel.observe.alerts.settings import PREFIX, AlertSettings, BadAlertSettings, alert_settings

_FILE = "the file of alert settings"


def read_config(path: str) -> tuple[AlertSettings, dict[str, Receiver]]:
    """The settings and the receivers of a file. BadAlertSettings."""
    try:
        properties = parse_properties(read_text(path, _FILE))
    except InvalidProperty as error:
        raise BadAlertSettings(str(error)) from None
    except BadProperties as error:
        raise BadAlertSettings(f"{path} is not a valid properties file: {error}") from None
    for name in properties:
        if not name.startswith(PREFIX):
            raise BadAlertSettings(f"unknown setting {name}: the names of alert settings begin with {PREFIX}")
    return parsed_config(properties)


def parsed_config(properties: Mapping[str, str]) -> tuple[AlertSettings, dict[str, Receiver]]:
    """The settings and the receivers of properties; those of other parts are ignored. BadAlertSettings."""
    stripped = {name: value.strip() for name, value in properties.items()}
    return alert_settings(stripped), receivers_of(stripped)
