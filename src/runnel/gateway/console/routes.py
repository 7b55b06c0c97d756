"""All addresses of the console."""

from starlette.routing import BaseRoute, Route

from runnel.gateway.console import (
    alerts,
    brokers,
    dead_letters,
    groups,
    login,
    messages,
    overview,
    reports,
    schemas,
    streams,
    topic,
    topics,
    transactions,
)
from runnel.gateway.console.dialogs import Dialog
from runnel.gateway.console.pages import Page, endpoint
from runnel.gateway.console.static_files import static_file

PAGES = (
    Page("/", "Overview", "overview", overview.overview, live_ms=2000),
    Page("/topics", "Topics", "topics", topics.topics, toolbar="topics_toolbar.html", live_ms=3000),
    Page("/topics/{topic}", "{topic}", "topics", topic.partitions, tabs="topic_tabs.html", live_ms=3000),
    Page(
        "/topics/{topic}/messages",
        "Messages of {topic}",
        "topics",
        messages.messages,
        toolbar="messages_toolbar.html",
        tabs="topic_tabs.html",
    ),
    Page("/topics/{topic}/groups", "Groups of {topic}", "topics", topic.readers, tabs="topic_tabs.html"),
    Page("/topics/{topic}/settings", "Settings of {topic}", "topics", topic.settings, tabs="topic_tabs.html"),
    Page("/groups", "Groups", "groups", groups.groups, toolbar="groups_toolbar.html", live_ms=3000),
    Page(
        "/group",
        "{id}",
        "groups",
        groups.group,
        toolbar="group_toolbar.html",
        tabs="group_tabs.html",
        live_ms=2000,
    ),
    Page("/brokers", "Brokers", "brokers", brokers.brokers, tabs="brokers_tabs.html", live_ms=3000),
    Page(
        "/brokers/map",
        "Partition map",
        "brokers",
        brokers.partition_map,
        toolbar="map_toolbar.html",
        tabs="brokers_tabs.html",
        live_ms=5000,
    ),
    Page("/settings", "Settings", "settings", brokers.settings_start),
    Page(
        "/settings/{broker}",
        "Settings of broker {broker}",
        "settings",
        brokers.settings,
        toolbar="settings_toolbar.html",
    ),
    Page(
        "/transactions",
        "Transactions",
        "transactions",
        transactions.transactions,
        toolbar="transactions_toolbar.html",
        live_ms=3000,
    ),
    Page("/schemas", "Schemas", "schemas", schemas.schemas, toolbar="schemas_toolbar.html", live_ms=5000),
    Page("/schema", "{id}", "schemas", schemas.schema),
    Page("/pipelines", "Pipelines", "pipelines", reports.pipelines),
    Page("/alerts", "Alerts", "alerts", alerts.alerts, live_ms=3000),
    Page("/dead-letters", "Dead letters", "dead-letters", dead_letters.dead_letters),
    Page("/dead-letters/{topic}", "{topic}", "dead-letters", dead_letters.letters),
)

DIALOGS = (
    Dialog("/new-topic", "topic_create.html", topics.show_create, topics.create),
    Dialog("/topics/{topic}/delete", "topic_delete.html", topic.show_delete, topic.delete),
    Dialog("/topics/{topic}/purge", "topic_purge.html", topic.show_purge, topic.purge),
    Dialog(
        "/topics/{topic}/partitions", "topic_partitions.html", topic.show_partitions, topic.add_partitions
    ),
    Dialog("/topics/{topic}/setting", "setting.html", topic.show_setting, topic.change_setting),
    Dialog("/topics/{topic}/produce", "produce.html", messages.show_produce, messages.produce),
    Dialog(
        "/topics/{topic}/partitions/{partition:int}/replicas",
        "reassign.html",
        topic.show_reassign,
        topic.reassign,
    ),
    Dialog("/group/reset", "group_reset.html", groups.show_reset, groups.reset),
    Dialog("/group/delete", "group_delete.html", groups.show_delete, groups.delete),
    Dialog("/alerts/silence", "silence.html", alerts.show_silence, alerts.silence),
    Dialog("/alerts/end-silence", "silence_end.html", alerts.show_end, alerts.end_silence),
    Dialog("/brokers/elect", "elect.html", brokers.show_elect, brokers.elect),
    Dialog("/settings/{broker}/setting", "setting.html", topic.show_setting, topic.change_setting),
    Dialog("/transactions/abort", "transaction_abort.html", transactions.show_abort, transactions.abort),
    Dialog("/dead-letters/{topic}/redrive", "redrive.html", dead_letters.show_redrive, dead_letters.redrive),
)


def console_routes(*, read_only: bool) -> list[BaseRoute]:
    """The routes of the console; without those that change something if it is read-only."""
    routes: list[BaseRoute] = [
        Route("/static/{name:path}", static_file),
        Route("/login", login.login, methods=["GET", "POST"]),
        Route("/logout", login.logout, methods=["POST"]),
        Route("/pipelines/{report}", endpoint(reports.report)),
        Route("/throughput.json", endpoint(overview.throughput)),
        Route("/topics/{topic}/message", endpoint(messages.message)),
        Route("/topics/{topic}/histogram", endpoint(messages.histogram)),
        Route("/group/history", endpoint(groups.history)),
        Route("/topics/{topic}/search", endpoint(streams.search)),
        Route("/topics/{topic}/tail", endpoint(streams.tail)),
    ]
    if not read_only:
        routes += [
            Route(dialog.path, endpoint(dialog.respond), methods=["GET", "POST"]) for dialog in DIALOGS
        ]
    return routes + [Route(page.path, endpoint(page.respond)) for page in PAGES]
