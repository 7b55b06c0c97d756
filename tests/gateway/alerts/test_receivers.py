"""Deliveries to real local servers: webhook, Slack, e-mail."""

import base64
import hashlib
import hmac
import json

import pytest

from runnel.gateway.alerts.config import parsed_config, read_config
from runnel.gateway.alerts.payloads import ALERTS_MAX, alertmanager, email, slack, title
from runnel.gateway.alerts.receivers import DeliveryFailed, receivers_of
from runnel.gateway.alerts.trial import trial_notifications
from runnel.observe.alerts.alert import FIRING, Alert
from runnel.observe.alerts.groups import Notification, group_key
from runnel.observe.alerts.settings import BadAlertSettings
from tests.gateway.alerts.servers import HOST, mail_server, webhook

FIRED, ENDED = trial_notifications("ops")


def receiver(**values: str):
    properties = {f"alerts.receiver.ops.{name.rstrip('_')}": value for name, value in values.items()}
    return receivers_of(properties)["ops"]


def test_webhook_is_alertmanagers_and_signed(tmp_path):
    (tmp_path / "secret").write_text("tea\n")
    with webhook() as hook:
        ops = receiver(type="webhook", url=hook.url, secret=f"${{file:{tmp_path}/secret}}")
        ops.send(FIRED)
        ops.send(ENDED)
    (_, headers, body), _ = hook.requests
    signed = hmac.new(b"tea", headers["X-Runnel-Timestamp"].encode() + b"." + body, hashlib.sha256)
    assert headers["X-Runnel-Signature"] == f"sha256={signed.hexdigest()}"
    assert headers["Content-Type"] == "application/json"
    fired, ended = hook.bodies
    [alert] = fired["alerts"]
    assert (fired["version"], fired["status"], fired["receiver"]) == ("4", "firing", "ops")
    assert fired["groupKey"] == '{}:{alertname="TestAlert"}'
    assert fired["commonLabels"] == {"alertname": "TestAlert", "severity": "warning"}
    assert alert["endsAt"] == "0001-01-01T00:00:00Z" and alert["startsAt"].endswith("Z")
    assert ended["status"] == "resolved" and ended["alerts"][0]["endsAt"] == alert["startsAt"]
    assert ended["alerts"][0]["fingerprint"] == alert["fingerprint"]


@pytest.mark.parametrize("status", [302, 404, 429, 500])
def test_other_statuses_are_failures(status):
    with webhook() as hook:
        hook.status = status
        with pytest.raises(DeliveryFailed) as raised:
            receiver(type="webhook", url=hook.url).send(FIRED)
    assert f"HTTP status {status}" in str(raised.value)


def test_failures_name_no_secrets(monkeypatch):
    monkeypatch.setenv("HOOK", f"http://{HOST}:1/T0PSECRET")
    ops = receiver(type="slack", url="${env:HOOK}")
    with pytest.raises(DeliveryFailed) as raised:
        ops.send(FIRED)
    assert "refused" in str(raised.value)
    assert "T0PSECRET" not in str(raised.value) + repr(ops)
    monkeypatch.delenv("HOOK")
    with pytest.raises(DeliveryFailed) as raised:
        ops.send(FIRED)
    assert "the environment variable HOOK is not set" in str(raised.value)
    monkeypatch.setenv("HOOK", "file:///etc/passwd")
    with pytest.raises(DeliveryFailed):
        ops.send(FIRED)


@pytest.mark.parametrize(
    "url",
    [
        f"http://{HOST}:1/T0PSECRET x",
        f"http://{HOST}:1/T0PSECRET\nx",
        f"http://me:T0PSECRET@{HOST}/x",
        f"http://{HOST}:T0PSECRET/",
    ],
)
def test_urls_that_are_not_valid_are_not_quoted(monkeypatch, url):
    monkeypatch.setenv("HOOK", url)
    with pytest.raises(DeliveryFailed) as raised:
        receiver(type="slack", url="${env:HOOK}").send(FIRED)
    assert "not valid" in str(raised.value) and "T0PSECRET" not in str(raised.value)


def test_slack():
    with webhook() as hook:
        receiver(type="slack", url=hook.url).send(FIRED)
    [body] = hook.bodies
    assert body["text"] == "[FIRING:1] TestAlert"
    assert body["attachments"][0]["color"] == "danger"


def test_email():
    with mail_server() as (mail, port):
        ops = receiver(
            type="email",
            smtp=f"{HOST}:{port}",
            from_="r@example.com",
            to="a@example.com, b@example.com",
            tls="none",
        )
        ops.send(FIRED)
    [(recipients, text)] = mail.messages
    assert recipients == ["a@example.com", "b@example.com"]
    assert "Subject: [FIRING:1] TestAlert" in text and "This is a test" in text


def test_email_with_password(monkeypatch):
    monkeypatch.setenv("SMTP_PASSWORD", "tea")
    wanted = base64.b64encode(b"\0anna\0tea").decode()
    values = dict(type="email", from_="r@example.com", to="a@example.com", tls="none", username="anna")
    with mail_server(password=wanted) as (mail, port):
        receiver(**values, smtp=f"{HOST}:{port}", password="${env:SMTP_PASSWORD}").send(FIRED)
        with pytest.raises(DeliveryFailed) as raised:
            receiver(**values, smtp=f"{HOST}:{port}", password="coffee").send(FIRED)
        assert "535" in str(raised.value)
        # Without TLS on offer nothing is sent in clear text.
        with pytest.raises(DeliveryFailed):
            receiver(**{**values, "tls": "starttls"}, smtp=f"{HOST}:{port}", password="tea").send(FIRED)
    assert len(mail.messages) == 1


def many(count: int, group: str = "etl") -> Notification:
    alerts = tuple(
        Alert({"alertname": "X", "group": f"{group}{number}"}, FIRING, 0, 1.0, 0, "<b>&", "x", fired_ms=0)
        for number in range(count)
    )
    labels = {"group": group}
    return Notification("ops", group_key(labels), labels, alerts, ())


def test_large_notifications_are_truncated():
    body = alertmanager(many(ALERTS_MAX + 3))
    assert (len(body["alerts"]), body["truncatedAlerts"]) == (ALERTS_MAX, 3)
    assert "and 83 more" in json.dumps(slack(many(ALERTS_MAX + 3)))
    assert "and 3 more" in email(many(ALERTS_MAX + 3), "a@b.c", ["d@e.f"]).get_content()


def test_texts_of_users_are_inert():
    evil = many(1, "x\r\nBcc: everyone@example.com\r\n\r\n<script>")
    assert "\n" not in title(evil)
    message = email(evil, "a@b.c", ["d@e.f"])
    assert message["Bcc"] is None
    assert slack(evil)["attachments"][0]["title"] == "&lt;b&gt;&amp;"


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"ops.type": "pager"}, "alerts.receiver.ops.type must be one of webhook, slack, email"),
        ({"ops.url": "http://x"}, "alerts.receiver.ops.type must be one of"),
        ({"ops.type": "webhook"}, "alerts.receiver.ops.url is required"),
        ({"ops.type": "webhook", "ops.url": "ftp://x"}, "must begin with http:// or https://"),
        (
            {"ops.type": "webhook", "ops.url": "http://x", "ops.sercet": "y"},
            "did you mean alerts.receiver.ops.secret?",
        ),
        ({"ops.type": "slack", "ops.url": "http://x", "ops.severities": "page"}, "severities must be"),
        (
            {"m.type": "email", "m.smtp": "x", "m.from": "a", "m.to": "b", "m.tls": "yes"},
            "alerts.receiver.m.tls must be one of",
        ),
        ({"ops": "x"}, "unknown setting alerts.receiver.ops"),
    ],
)
def test_mistakes_in_settings(properties, message):
    with pytest.raises(BadAlertSettings) as raised:
        parsed_config({f"alerts.receiver.{name}": value for name, value in properties.items()})
    assert message in str(raised.value)


def test_file(tmp_path):
    path = tmp_path / "alerts.properties"
    path.write_text(
        "alerts.interval=5s\nalerts.receiver.ops.type=slack\nalerts.receiver.ops.url=${env:SLACK}\n"
    )
    settings, receivers = read_config(str(path))
    assert (settings.interval_ms, list(receivers)) == (5000, ["ops"])
    path.write_text("interval=5s\n")
    with pytest.raises(BadAlertSettings):
        read_config(str(path))
    with pytest.raises(BadAlertSettings):
        read_config(str(tmp_path / "none"))
