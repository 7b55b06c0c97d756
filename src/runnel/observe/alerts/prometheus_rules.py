"""The rules as a file for Prometheus, in YAML."""

import json
from collections.abc import Iterable, Iterator
from string import Template

from runnel.observe.alerts.rules import GROUPS, Rule
from runnel.observe.alerts.settings import duration_text
from runnel.observe.alerts.templates import plain

HEADER = """\
# Written by `runnel alert export-rules`. Scrape the admin listeners of the brokers as job "runnel":
#
#   scrape_configs:
#     - job_name: runnel
#       scrape_interval: 15s
#       static_configs: [{targets: ["broker-1:9644", "broker-2:9644", "broker-3:9644"]}]
"""


def rules_file(rules: Iterable[Rule]) -> str:
    """The file, with these rules in groups."""
    wanted = {rule.name: rule for rule in rules}
    lines = [HEADER + "groups:"]
    for group, members in GROUPS.items():
        present = [wanted[rule.name] for rule in members if rule.name in wanted]
        if present:
            lines += [f"  - name: runnel-{group}", "    rules:"]
            lines += [line for rule in present for line in _rule(rule)]
    return "\n".join(lines) + "\n"


def expression(rule: Rule) -> str:
    """The condition in PromQL, with the thresholds."""
    return Template(rule.expr).substitute({name: plain(value) for name, value in rule.thresholds.items()})


def _rule(rule: Rule) -> Iterator[str]:
    yield f"      - alert: {rule.name}"
    yield f"        expr: {_text(expression(rule))}"
    if rule.for_ms:
        yield f"        for: {duration_text(rule.for_ms)}"
    yield "        labels:"
    yield f"          severity: {rule.severity}"
    yield "        annotations:"
    yield f"          summary: {_text(_of_instance(rule.summary))}"
    yield f"          description: {_text(_of_instance(rule.description))}"


def _of_instance(template: str) -> str:
    """Prometheus knows a broker by the address that it scrapes."""
    return template.replace("$labels.broker ", "$labels.instance ")


def _text(text: str) -> str:
    # A JSON string is one of YAML, too.
    return json.dumps(text, ensure_ascii=False)
