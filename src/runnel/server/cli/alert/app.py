"""The commands of `runnel alert`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel.server.cli.alert import silence
from runnel.server.cli.alert.options import AlertsConfig, read_alerts_config
from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap, Json

if TYPE_CHECKING:
    from runnel.observe.alerts.alert import Alert
    from runnel.observe.alerts.alerting import Alerting

app = typer.Typer(help="List, silence and deliver alerts; export rules.", no_args_is_help=True)
app.add_typer(silence.app, name="silence")


@app.command("list")
def list_alerts(
    all_states: Annotated[bool, typer.Option("--all", help="Include resolved alerts.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """List firing and pending alerts, with their silences and failed notifications.

    Example: runnel alert list
    """
    from runnel.gateway.alerts.state_topic import read_records
    from runnel.observe.alerts.alert import RESOLVED
    from runnel.observe.alerts.alerting import Alerting
    from runnel.observe.alerts.settings import AlertSettings
    from runnel.server.cli.output import print_json, print_table, time_text
    from runnel.server.cli.session import with_cluster

    records = with_cluster(bootstrap, read_records)
    alerting = Alerting(AlertSettings())
    alerting.restore(records)
    order = {"firing": 0, "pending": 1, "resolved": 2}
    alerts = sorted(alerting.alerts.values(), key=lambda each: (order[each.state], each.active_ms, each.name))
    documents = [_document(alerting, each) for each in alerts if all_states or each.state != RESOLVED]
    if as_json:
        print_json({"evaluator": _evaluator(records), "alerts": documents})
        return
    print_table(
        ["state", "alert", "severity", "since", "summary", "silenced by", "not delivered to"],
        [
            (
                each["state"],
                each["labels"]["alertname"],
                each["labels"]["severity"],
                time_text(each["active_ms"]),
                each["summary"],
                ", ".join(each["silenced_by"]) or None,
                ", ".join(f"{name}: {error}" for name, error in each["failed"].items()) or None,
            )
            for each in documents
        ],
        empty="no alerts",
    )
    _warn_if_not_evaluated(records)


def _document(alerting: "Alerting", alert: "Alert") -> dict[str, Any]:
    """An alert with its silences and failed notifications."""
    import time
    from dataclasses import asdict

    fingerprint = alert.fingerprint
    failed = {
        receiver: notified.error
        for group in alerting.groups.values()
        for receiver, notified in group.notified.items()
        if notified.error is not None and fingerprint in (*notified.owed, *notified.firing)
    }
    silences = alerting.silenced_by(alert, time.time_ns() // 1_000_000)
    return {**asdict(alert), "fingerprint": fingerprint, "silenced_by": silences, "failed": failed}


def _evaluator(records: dict[str, str]) -> dict[str, Any] | None:
    from runnel.gateway.alerts.evaluator import HOLDER
    from runnel.gateway.alerts.state_topic import object_of

    return object_of(records.get(HOLDER)) or None


def _warn_if_not_evaluated(records: dict[str, str]) -> None:
    """Print a notice if no evaluator is active, so that the list may be outdated."""
    import time

    from runnel.server.cli.output import print_info

    evaluator = _evaluator(records)
    if evaluator is None:
        print_info("no evaluator is active; start one with `runnel alert run`")
    elif time.time() * 1000 - evaluator["evaluated_ms"] > 4 * evaluator["interval_ms"]:
        print_info(f"the evaluator {evaluator['instance']} has not evaluated the rules for some time")


@app.command()
def rules(alerts_config: AlertsConfig = None, as_json: Json = False) -> None:
    """List the rules with their thresholds, which `alerts.<rule>.<threshold>` changes.

    Example: runnel alert rules --json
    """
    from runnel.observe.alerts.prometheus_rules import expression
    from runnel.observe.alerts.settings import duration_text
    from runnel.observe.alerts.templates import plain
    from runnel.server.cli.output import print_json, print_table

    settings, _ = read_alerts_config(alerts_config)
    if as_json:
        print_json(
            [
                {
                    "name": rule.name,
                    "severity": rule.severity,
                    "for_ms": rule.for_ms,
                    "thresholds": dict(rule.thresholds),
                    "summary": rule.summary,
                    "description": rule.description,
                    "expr": expression(rule),
                }
                for rule in settings.rules
            ]
        )
        return
    print_table(
        ["rule", "severity", "for", "thresholds"],
        [
            (
                rule.name,
                rule.severity,
                duration_text(rule.for_ms),
                ", ".join(f"{name}={plain(value)}" for name, value in rule.thresholds.items()) or None,
            )
            for rule in settings.rules
        ],
    )


@app.command("test")
def send_test(
    receiver: Annotated[str, typer.Argument(help="The receiver, by its name in the settings.")],
    alerts_config: AlertsConfig = None,
) -> None:
    """Deliver a test notification to a receiver, and another that resolves it.

    Example: runnel alert test ops --alerts-config alerts.properties
    """
    from runnel.gateway.alerts.receivers import DeliveryFailed
    from runnel.gateway.alerts.trial import trial_notifications
    from runnel.server.cli.output import CommandError, print_info

    _, receivers = read_alerts_config(alerts_config)
    if receiver not in receivers:
        known = ", ".join(receivers) or "none"
        raise CommandError(f"there is no receiver {receiver!r} in the settings of alerts (known: {known})")
    try:
        for notification in trial_notifications(receiver):
            receivers[receiver].send(notification)
    except DeliveryFailed as error:
        raise CommandError(f"{receiver} did not accept the notification: {error}") from None
    print_info(f"{receiver} accepted a test notification and its resolution")


@app.command()
def export_rules(alerts_config: AlertsConfig = None) -> None:
    """Print the rules as a file for Prometheus.

    Example: runnel alert export-rules > runnel-rules.yml
    """
    from runnel.observe.alerts.prometheus_rules import rules_file

    settings, _ = read_alerts_config(alerts_config)
    print(rules_file(settings.rules), end="")


@app.command()
def export_dashboard() -> None:
    """Print a dashboard for Grafana.

    Example: runnel alert export-dashboard > runnel-dashboard.json
    """
    from runnel.observe.grafana import dashboard_text

    print(dashboard_text(), end="")


@app.command()
def run(
    alerts_config: AlertsConfig = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Evaluate the rules and deliver notifications until Ctrl-C or SIGTERM.

    One of the evaluators of a cluster is active, the others are on standby.

    Example: runnel alert run --alerts-config alerts.properties
    """
    import logging

    from runnel.gateway.alerts.evaluator import Evaluator, EvaluatorOptions
    from runnel.server.cli.connecting import client_properties
    from runnel.server.cli.session import run as run_coroutine
    from runnel.server.cli.stop_signals import stop_signal

    settings, receivers = read_alerts_config(alerts_config)
    options = EvaluatorOptions(bootstrap, client_properties(), settings, receivers)
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")

    async def until_stopped() -> None:
        import asyncio

        from runnel.gateway.alerts import evaluator as alerts

        evaluator = Evaluator(options)
        stop = stop_signal()
        running = asyncio.create_task(alerts.run(evaluator))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        evaluator.stop()
        await running

    run_coroutine(until_stopped())
