"""The tree of commands."""

from runnel.server.cli import (
    acl,
    bench,
    cluster,
    config,
    consume,
    demo,
    gateway,
    group,
    log,
    produce,
    quota,
    role,
    schema,
    security,
    storage,
    tenant,
    token,
    top,
    topic,
    txn,
    user,
    version,
)
from runnel.server.cli.alert import app as alert
from runnel.server.cli.connecting import add_client_options
from runnel.server.cli.pipeline import app as pipeline
from runnel.server.cli.root import BROKER, new_app

RECORDS, ADMINISTRATION = "Records", "Administration"

app = new_app()
app.command("demo", rich_help_panel=BROKER)(demo.demo)
app.command("gateway", rich_help_panel=BROKER)(gateway.gateway)
app.command("produce", rich_help_panel=RECORDS)(produce.produce)
app.command("consume", rich_help_panel=RECORDS)(consume.consume)
app.add_typer(pipeline.app, name="pipeline", rich_help_panel=RECORDS)
app.add_typer(schema.app, name="schema", rich_help_panel=RECORDS)
app.add_typer(cluster.app, name="cluster", rich_help_panel=ADMINISTRATION)
app.command("top", rich_help_panel=ADMINISTRATION)(top.top)
app.add_typer(topic.app, name="topic", rich_help_panel=ADMINISTRATION)
app.add_typer(group.app, name="group", rich_help_panel=ADMINISTRATION)
app.add_typer(txn.app, name="txn", rich_help_panel=ADMINISTRATION)
app.add_typer(user.app, name="user", rich_help_panel=ADMINISTRATION)
app.add_typer(token.app, name="token", rich_help_panel=ADMINISTRATION)
app.add_typer(config.app, name="config", rich_help_panel=ADMINISTRATION)
app.add_typer(quota.app, name="quota", rich_help_panel=ADMINISTRATION)
app.add_typer(tenant.app, name="tenant", rich_help_panel=ADMINISTRATION)
app.add_typer(acl.app, name="acl", rich_help_panel=ADMINISTRATION)
app.add_typer(role.app, name="role", rich_help_panel=ADMINISTRATION)
app.add_typer(alert.app, name="alert", rich_help_panel=ADMINISTRATION)
app.add_typer(security.app, name="security", rich_help_panel=ADMINISTRATION)
app.add_typer(storage.app, name="storage", rich_help_panel=ADMINISTRATION)
app.add_typer(log.app, name="log", rich_help_panel=ADMINISTRATION)
app.command("bench", rich_help_panel=ADMINISTRATION)(bench.bench)
app.command("version", rich_help_panel=ADMINISTRATION)(version.version)
add_client_options(app)
