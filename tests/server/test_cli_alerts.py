"""`runnel alert …`."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from runnel.gateway.alerts.evaluator import HOLDER
from runnel.gateway.alerts.state_topic import TOPIC
from runnel.observe.alerts.alert import FIRING, PENDING, RESOLVED, Alert
from runnel.observe.alerts.groups import Group, Notified
from runnel.observe.alerts.rules import RULES
from runnel.observe.grafana import dashboard
from tests.gateway.alerts.servers import metrics, webhook


@pytest.fixture
def config(tmp_path):
    with webhook() as hook:
        path = tmp_path / "alerts.properties"
        path.write_text(f"alerts.receiver.ops.type=webhook\nalerts.receiver.ops.url={hook.url}\n")
        yield hook, str(path)


def test_rules_and_their_thresholds(run, tmp_path):
    assert len(run.ok("alert", "rules").lines) == len(RULES) + 1
    path = tmp_path / "alerts.properties"
    path.write_text("alerts.ConsumerLagHigh.records=7\n")
    shown = run.ok("alert", "rules", "--json", "--alerts-config", str(path)).json
    [lag] = [rule for rule in shown if rule["name"] == "ConsumerLagHigh"]
    assert lag["thresholds"] == {"records": 7} and "> 7 and" in lag["expr"]
    path.write_text("alerts.ConsumerLagHigh.record=7\n")
    assert "did you mean" in run.fails("alert", "rules", "--alerts-config", str(path)).err


def test_exports(run):
    assert run.ok("alert", "export-rules").out.startswith("# Written by `runnel alert export-rules`")
    assert run.ok("alert", "export-dashboard").json == dashboard()


def test_a_receiver_is_tried(run, config):
    hook, path = config
    run.ok("alert", "test", "ops", "--alerts-config", path)
    assert hook.statuses == ["firing", "resolved"]
    assert "there is no receiver 'dev'" in run.fails("alert", "test", "dev", "--alerts-config", path).err
    hook.status = 500
    assert "HTTP status 500" in run.fails("alert", "test", "ops", "--alerts-config", path).err


def test_silences(run):
    about = ("--for", "1h", "--why", "disks", "--who", "anna")
    added = run.ok("alert", "silence", "add", "alertname=DiskSpaceLow", "broker=~1|2", *about, "--json").json
    assert added["matchers"] == ['alertname="DiskSpaceLow"', 'broker=~"1|2"']
    listed = {each["id"]: each for each in run.ok("alert", "silence", "list", "--json").json}
    assert listed[added["id"]] == {**added, "state": "active"}
    assert added["id"] in run.ok("alert", "silence", "list").out
    run.ok("alert", "silence", "expire", added["id"])
    assert added["id"] not in run.ok("alert", "silence", "list").out
    ended = run.ok("alert", "silence", "list", "--all", "--json").json
    assert [each["state"] for each in ended if each["id"] == added["id"]] == ["ended"]
    assert "or it has ended" in run.fails("alert", "silence", "expire", added["id"]).err
    assert run("alert", "silence", "add", "alertname").code == 2
    assert run("alert", "silence", "add", "a=~(").code == 2


def test_alerts_are_listed_with_silences_and_failures(run):
    now_ms = time.time_ns() // 1_000_000
    alerts = [
        Alert({"alertname": name, "severity": "warning"}, state, now_ms, 1.0, now_ms, f"{name} is here")
        for name, state in (("ListedA", PENDING), ("ListedB", FIRING), ("ListedC", RESOLVED))
    ]
    notified = Notified(owed=[alerts[1].fingerprint], attempts=2, error="HTTP status 500")
    group = Group({"alertname": "ListedB"}, now_ms, {"ops": notified})
    holder = {"instance": "x", "evaluated_ms": now_ms, "interval_ms": 15_000}
    run.ok("alert", "silence", "add", "alertname=ListedB", "--for", "1h")
    lines = [
        json.dumps({"key": key, "value": text})
        for key, text in [
            *(alert.to_record() for alert in alerts),
            group.to_record(),
            (HOLDER, json.dumps(holder)),
        ]
    ]
    run.ok("produce", TOPIC, "--json", stdin="\n".join(lines))
    shown = run.ok("alert", "list", "--json").json
    assert shown["evaluator"]["instance"] == "x"
    listed = {each["labels"]["alertname"]: each for each in shown["alerts"]}
    assert (listed["ListedB"]["state"], listed["ListedA"]["state"]) == ("firing", "pending")
    assert len(listed["ListedB"]["silenced_by"]) == 1
    assert listed["ListedB"]["failed"] == {"ops": "HTTP status 500"}
    assert "ListedC" not in listed
    table = run.ok("alert", "list", "--all").out
    assert "ListedB is here" in table and "ops: HTTP status 500" in table and "ListedC" in table


def test_the_evaluator_runs_in_the_foreground(runnel, config):
    hook, path = config
    with metrics() as scraped, open(path, "a") as file:
        scraped.text = "kafka_log_logmanager_offlinelogdirectorycount 1\n"
        file.write(
            f"alerts.interval=200ms\nalerts.group.wait=0\nalerts.admin.addresses=1=127.0.0.1:{scraped.port}\n"
        )
        file.flush()
        command = [sys.executable, "-m", "runnel.server.cli", "alert", "run", "--alerts-config", path]
        environment = {**os.environ, "RUNNEL_BOOTSTRAP": runnel.bootstrap_servers}
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        try:
            hook.wait_for(1)
        finally:
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert hook.bodies[0]["groupLabels"] == {"alertname": "LogDirectoryOffline"}
