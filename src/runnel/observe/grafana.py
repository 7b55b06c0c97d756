"""The Grafana dashboard: a table of panels, and the document that is generated from it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH = 24
"""Columns of Grafana's grid."""
STAT_HEIGHT, GRAPH_HEIGHT = 4, 8
SCHEMA_VERSION = 39
UID = "runnel-overview"

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
RATE = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: what it shows by which expressions, each with the legend of its series."""

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    kind: str = "timeseries"
    """timeseries, stat or table."""
    description: str = ""
    red_above: float | None = None
    """A stat is green up to this value."""


def _p99(metric: str, by: str) -> str:
    return f"histogram_quantile(0.99, sum by ({by}, le) (rate({metric}_bucket[{RATE}])))"


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Cluster",
        (
            Panel("Brokers", (("max(kafka_brokers)", ""),), kind="stat"),
            Panel(
                "Active controllers",
                (("sum(kafka_controller_kafkacontroller_activecontrollercount)", ""),),
                kind="stat",
                red_above=1,
            ),
            Panel(
                "Partitions without leader",
                (("max(kafka_controller_kafkacontroller_offlinepartitionscount)", ""),),
                kind="stat",
                red_above=0,
            ),
            Panel(
                "Under-replicated",
                (("sum(kafka_server_replicamanager_underreplicatedpartitions)", ""),),
                kind="stat",
                red_above=0,
            ),
            Panel(
                "Below min.insync.replicas",
                (("sum(kafka_server_replicamanager_underminisrpartitioncount)", ""),),
                kind="stat",
                red_above=0,
            ),
            Panel(
                "Disk used",
                (("max(1 - runnel_disk_free_bytes / runnel_disk_total_bytes)", ""),),
                "percentunit",
                "stat",
                red_above=0.8,
            ),
        ),
    ),
    (
        "Throughput",
        (
            Panel(
                "Records in",
                (
                    (
                        "sum by (topic) (rate(kafka_server_brokertopicmetrics_messagesin_total"
                        f'{{topic=~"$topic"}}[{RATE}]))',
                        "{{topic}}",
                    ),
                ),
                "cps",
            ),
            Panel(
                "Bytes in and out",
                (
                    (
                        "sum by (topic) (rate(kafka_server_brokertopicmetrics_bytesin_total"
                        f'{{topic=~"$topic"}}[{RATE}]))',
                        "{{topic}} in",
                    ),
                    (
                        "-sum by (topic) (rate(kafka_server_brokertopicmetrics_bytesout_total"
                        f'{{topic=~"$topic"}}[{RATE}]))',
                        "{{topic}} out",
                    ),
                ),
                "Bps",
            ),
            Panel(
                "Requests",
                ((f"sum by (api) (rate(runnel_request_seconds_count[{RATE}]))", "{{api}}"),),
                "reqps",
            ),
        ),
    ),
    (
        "Latency",
        (
            Panel("Requests, 99th percentile", ((_p99("runnel_request_seconds", "api"), "{{api}}"),), "s"),
            Panel(
                "End to end, 99th percentile",
                ((_p99("runnel_end_to_end_seconds", "instance"), "{{instance}}"),),
                "s",
                description="From a record's timestamp to the response to a consumer that waited for it.",
            ),
            Panel(
                "Event loop and fsync, 99th percentile",
                (
                    (_p99("runnel_loop_delay_seconds", "instance"), "{{instance}} loop"),
                    (_p99("runnel_fsync_seconds", "instance"), "{{instance}} fsync"),
                ),
                "s",
            ),
        ),
    ),
    (
        "Consumers",
        (
            Panel(
                "Lag in records",
                (
                    (
                        "max by (consumergroup, topic) (kafka_consumergroup_lag_sum"
                        '{consumergroup=~"$group", topic=~"$topic"})',
                        "{{consumergroup}} {{topic}}",
                    ),
                ),
            ),
            Panel(
                "Lag in seconds",
                (
                    (
                        'max by (group) (kafka_consumergroup_group_max_lag_seconds{group=~"$group"})',
                        "{{group}}",
                    ),
                ),
                "s",
                description="The time since the append of the first record that a group has not read.",
            ),
            Panel(
                "Groups",
                (('max by (group, verdict) (runnel_group_verdict{group=~"$group"}) > 0', ""),),
                kind="table",
            ),
        ),
    ),
    (
        "Replication and storage",
        (
            Panel(
                "Replica lag",
                (("max by (instance) (runnel_replica_lag_seconds)", "{{instance}}"),),
                "s",
            ),
            Panel(
                "Changes of the ISR",
                ((f"sum by (instance) (rate(runnel_isr_changes_total[{RATE}]))", "{{instance}}"),),
                "cps",
            ),
            Panel("Free disk space", (("runnel_disk_free_bytes", "{{instance}}"),), "bytes"),
        ),
    ),
)

VARIABLES = (
    ("topic", "label_values(kafka_server_brokertopicmetrics_messagesin_total, topic)"),
    ("group", "label_values(kafka_consumergroup_lag_sum, consumergroup)"),
)


def dashboard() -> dict[str, Any]:
    """The document, as Grafana imports it."""
    return {
        "uid": UID,
        "title": "Runnel",
        "tags": ["runnel", "kafka"],
        "timezone": "browser",
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source_variable(), *(_variable(*each) for each in VARIABLES)]},
        "annotations": {"list": []},
        "panels": list(_panels()),
    }


def dashboard_text() -> str:
    """The document as the file that is shipped."""
    return json.dumps(dashboard(), indent=2) + "\n"


def expressions() -> Iterator[str]:
    """All expressions, those of the variables included."""
    for _, panels in ROWS:
        for panel in panels:
            yield from (expr for expr, _ in panel.queries)
    yield from (query for _, query in VARIABLES)


def _panels() -> Iterator[dict[str, Any]]:
    top = number = 0
    for title, panels in ROWS:
        number += 1
        place = {"h": 1, "w": WIDTH, "x": 0, "y": top}
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": place,
            "panels": [],
        }
        width = WIDTH // len(panels)
        height = STAT_HEIGHT if panels[0].kind == "stat" else GRAPH_HEIGHT
        for column, panel in enumerate(panels):
            number += 1
            place = {"h": height, "w": width, "x": column * width, "y": top + 1}
            yield {"id": number, **_panel(panel), "gridPos": place}
        top += 1 + height


def _panel(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red_above is not None:
        # Steps begin at a value: the next one that is displayed differently.
        steps.append({"color": "red", "value": panel.red_above + (0.001 if panel.red_above < 1 else 1)})
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": SOURCE,
                "expr": expr,
                "legendFormat": legend or "__auto",
                **({"format": "table", "instant": True} if panel.kind == "table" else {}),
            }
            for index, (expr, legend) in enumerate(panel.queries)
        ],
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
        "options": _OPTIONS[panel.kind],
    }


_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "colorMode": "value",
        "graphMode": "area",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    },
    "table": {"showHeader": True},
}


def _source_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": "variable"},
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
    }
