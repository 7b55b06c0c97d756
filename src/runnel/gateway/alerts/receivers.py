"""Receivers of notifications: their settings, and one blocking call that delivers to each kind.

    alerts.receiver.ops.type=webhook            Alertmanager's JSON
    alerts.receiver.ops.url=https://example.com/hook
    alerts.receiver.ops.secret=${file:/run/secrets/hook}
    alerts.receiver.ops.severities=critical     default: all
    alerts.receiver.chat.type=slack
    alerts.receiver.chat.url=${env:SLACK_URL}
    alerts.receiver.mail.type=email
    alerts.receiver.mail.smtp=smtp.example.com:587
    alerts.receiver.mail.from=runnel@example.com
    alerts.receiver.mail.to=ops@example.com,dev@example.com
    alerts.receiver.mail.tls=starttls           or tls, none
    alerts.receiver.mail.username=runnel
    alerts.receiver.mail.password=${env:SMTP_PASSWORD}

Any value may be a reference (`${env:…}`, `${file:…}`), which is resolved when a notification is delivered.
"""

import difflib
import hashlib
import hmac
import http.client
import json
import smtplib
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any
from urllib.parse import urlsplit

from runnel.client.errors import InvalidProperty
from runnel.client.references import is_reference, resolved
from runnel.gateway.alerts.payloads import alertmanager, email, slack
from runnel.observe.alerts.alerting import Route
from runnel.observe.alerts.groups import Notification
from runnel.observe.alerts.rules import CRITICAL, WARNING
from runnel.observe.alerts.settings import RECEIVER, BadAlertSettings

TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 4096
SIGNATURE, TIMESTAMP = "X-Runnel-Signature", "X-Runnel-Timestamp"

NAMES = {
    "webhook": {"url": True, "secret": False},
    "slack": {"url": True},
    "email": {"smtp": True, "from": True, "to": True, "tls": False, "username": False, "password": False},
}
"""The settings of each type, and whether they are required."""
_ALL = ("type", "severities")
_TLS = ("starttls", "tls", "none")


class DeliveryFailed(Exception):
    """A receiver did not accept a notification. The message contains no secrets."""


@dataclass(frozen=True, slots=True)
class Receiver:
    """One receiver."""

    name: str
    kind: str
    values: Mapping[str, str]
    severities: frozenset[str] | None = None

    @property
    def route(self) -> Route:
        """Which alerts it is notified of."""
        return Route(self.name, self.severities)

    def send(self, notification: Notification) -> None:
        """Deliver a notification: blocks for some seconds at most. DeliveryFailed if it is not accepted."""
        try:
            _SEND[self.kind](self, notification)
        except urllib.error.HTTPError as error:
            error.close()
            raise DeliveryFailed(f"HTTP status {error.code} {error.reason}") from None
        except urllib.error.URLError as error:
            raise DeliveryFailed(str(error.reason) or type(error.reason).__name__) from None
        except (http.client.InvalidURL, ValueError) as error:
            # Their texts quote a part of the URL, which may be the secret.
            raise DeliveryFailed(f"the URL or an address is not valid ({type(error).__name__})") from None
        except (InvalidProperty, OSError, http.client.HTTPException) as error:
            # Those of smtplib are OSErrors.
            raise DeliveryFailed(str(error) or type(error).__name__) from None

    def value(self, name: str, default: str = "") -> str:
        """A setting, with its references resolved."""
        return resolved(self.values.get(name, default), f"{RECEIVER}{self.name}.{name}")

    def __repr__(self) -> str:
        return f"Receiver({self.name}, {self.kind})"


def receivers_of(properties: Mapping[str, str]) -> dict[str, Receiver]:
    """The receivers that the properties describe. BadAlertSettings."""
    given: dict[str, dict[str, str]] = {}
    for name, value in properties.items():
        if name.startswith(RECEIVER):
            receiver, dot, part = name.removeprefix(RECEIVER).partition(".")
            if not dot or not receiver:
                raise BadAlertSettings(f"unknown setting {name}; expected {RECEIVER}<name>.type and others")
            given.setdefault(receiver, {})[part] = value
    return {name: _receiver(name, values) for name, values in given.items()}


def _receiver(name: str, values: dict[str, str]) -> Receiver:
    prefix = f"{RECEIVER}{name}."
    kind = values.get("type")
    if kind not in NAMES:
        raise BadAlertSettings(f"{prefix}type must be one of {', '.join(NAMES)}, not {kind!r}")
    for part in values:
        if part not in NAMES[kind] and part not in _ALL:
            close = difflib.get_close_matches(part, [*NAMES[kind], *_ALL], n=1)
            hint = f"; did you mean {prefix}{close[0]}?" if close else ""
            raise BadAlertSettings(f"unknown setting {prefix}{part}{hint}")
    for part, is_required in NAMES[kind].items():
        if is_required and not values.get(part):
            raise BadAlertSettings(f"{prefix}{part} is required")
    _check_values(prefix, values)
    severities = values.get("severities")
    accepted = None if severities is None else frozenset(each.strip() for each in severities.split(","))
    if accepted is not None and not accepted <= {CRITICAL, WARNING}:
        raise BadAlertSettings(f"{prefix}severities must be {CRITICAL}, {WARNING} or both")
    return Receiver(name, kind, values, accepted)


def _check_values(prefix: str, values: Mapping[str, str]) -> None:
    url = values.get("url", "")
    if url and not is_reference(url) and urlsplit(url).scheme not in ("http", "https"):
        raise BadAlertSettings(f"{prefix}url must begin with http:// or https://")
    if values.get("tls", "none") not in _TLS:
        raise BadAlertSettings(f"{prefix}tls must be one of {', '.join(_TLS)}")


def _webhook(receiver: Receiver, notification: Notification) -> None:
    body = json.dumps(alertmanager(notification)).encode()
    headers = {}
    if secret := receiver.value("secret"):
        moment = str(int(time.time()))
        headers = {TIMESTAMP: moment, SIGNATURE: signature(secret, moment, body)}
    _post(receiver.value("url"), body, headers)


def _slack(receiver: Receiver, notification: Notification) -> None:
    _post(receiver.value("url"), json.dumps(slack(notification)).encode(), {})


def signature(secret: str, moment: str, body: bytes) -> str:
    """What a webhook is signed with: its time, too, so that an old one cannot be sent again."""
    digest = hmac.new(secret.encode(), moment.encode() + b"." + body, hashlib.sha256)
    return f"sha256={digest.hexdigest()}"


def _post(url: str, body: bytes, headers: Mapping[str, str]) -> None:
    if urlsplit(url).scheme not in ("http", "https"):
        raise DeliveryFailed("the URL does not begin with http:// or https://")
    request = urllib.request.Request(
        url, body, {"Content-Type": "application/json", **headers}, method="POST"
    )
    opener = urllib.request.build_opener(_NoRedirect())
    with opener.open(request, timeout=TIMEOUT_S) as answer:
        answer.read(ANSWER_BYTES_MAX)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would become a GET without its body."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        return None


def _email(receiver: Receiver, notification: Notification) -> None:
    recipients = [each.strip() for each in receiver.value("to").split(",") if each.strip()]
    message = email(notification, receiver.value("from"), recipients)
    tls = receiver.value("tls", "starttls")
    host, _, port = receiver.value("smtp").partition(":")
    context = ssl.create_default_context()
    if tls == "tls":
        server: smtplib.SMTP = smtplib.SMTP_SSL(host, int(port or 465), timeout=TIMEOUT_S, context=context)
    else:
        server = smtplib.SMTP(host, int(port or 587), timeout=TIMEOUT_S)
    with server:
        if tls == "starttls":
            server.starttls(context=context)
        if username := receiver.value("username"):
            server.login(username, receiver.value("password"))
        server.send_message(message)


_SEND = {"webhook": _webhook, "slack": _slack, "email": _email}
