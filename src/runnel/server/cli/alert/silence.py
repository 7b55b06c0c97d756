"""`runnel alert silence …`: add, list and expire silences."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap, Json, parse_duration_ms

if TYPE_CHECKING:
    from runnel.client.cluster import Cluster
    from runnel.observe.alerts.silences import Silence

app = typer.Typer(help="Silence alerts for some time.", no_args_is_help=True)


@app.command()
def add(
    matchers: Annotated[
        list[str],
        typer.Argument(
            help="Labels of the alerts: topic=orders, alertname=~Disk.*, broker!=1. All must match."
        ),
    ],
    duration: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long: 30m, 2h or 7d.")
    ] = "2h",
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason.")] = "",
    who: Annotated[
        str | None,
        typer.Option("--who", metavar="NAME", help="Author of the silence. Default: the current user."),
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Silence alerts: no notifications are sent for matching alerts until the silence ends.

    Example: runnel alert silence add alertname=DiskSpaceLow broker=1 --for 2h --why "disk is being replaced"
    """
    import getpass
    import time
    import uuid

    from runnel.observe.alerts.silences import BadSilence, Silence, parse_matcher
    from runnel.server.cli.output import print_json
    from runnel.server.cli.session import with_cluster

    try:
        parsed = tuple(parse_matcher(text) for text in matchers)
    except BadSilence as error:
        raise typer.BadParameter(str(error), param_hint="MATCHERS") from None
    now_ms = time.time_ns() // 1_000_000
    silence = Silence(
        str(uuid.uuid4()), parsed, now_ms, now_ms + parse_duration_ms(duration), why, who or getpass.getuser()
    )
    with_cluster(bootstrap, lambda cluster: _write(cluster, silence))
    if as_json:
        print_json(_document(silence, now_ms))
    else:
        print(silence.id)


@app.command("list")
def list_silences(
    all_silences: Annotated[bool, typer.Option("--all", help="Include silences that have ended.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """List silences.

    Example: runnel alert silence list
    """
    import time

    from runnel.server.cli.output import print_json, print_table
    from runnel.server.cli.session import with_cluster

    now_ms = time.time_ns() // 1_000_000
    silences = sorted(with_cluster(bootstrap, _read), key=lambda silence: silence.ends_ms)
    documents = [
        _document(silence, now_ms) for silence in silences if all_silences or now_ms < silence.ends_ms
    ]
    if as_json:
        print_json(documents)
        return
    print_table(
        ["id", "state", "matchers", "ends", "who", "why"],
        [
            (each["id"], each["state"], " ".join(each["matchers"]), each["ends"], each["who"], each["why"])
            for each in documents
        ],
        empty="no silences",
    )


@app.command()
def expire(
    silence_id: Annotated[str, typer.Argument(help="The id, as `runnel alert silence list` shows it.")],
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """End a silence now.

    Example: runnel alert silence expire 0f8b9a52-7d0c-4f0e-9f56-b8a5a1f5d0a1
    """
    import time

    from runnel.server.cli.output import CommandError, print_info
    from runnel.server.cli.session import with_cluster

    async def work(cluster: "Cluster") -> None:
        found = [silence for silence in await _read(cluster) if silence.id == silence_id]
        now_ms = time.time_ns() // 1_000_000
        if not found or found[0].ends_ms <= now_ms:
            raise CommandError(f"there is no silence {silence_id}, or it has ended")
        await _write(cluster, found[0].expired(now_ms))

    with_cluster(bootstrap, work)
    print_info(f"silence {silence_id} has ended")


async def _read(cluster: "Cluster") -> "list[Silence]":
    from runnel.gateway.alerts.state_topic import read_records
    from runnel.observe.alerts.alerting import Alerting
    from runnel.observe.alerts.settings import AlertSettings

    alerting = Alerting(AlertSettings())
    alerting.restore(await read_records(cluster))
    return list(alerting.silences.values())


async def _write(cluster: "Cluster", silence: "Silence") -> None:
    from runnel.gateway.alerts.state_topic import write_silence

    await write_silence(cluster, silence)


def _document(silence: "Silence", now_ms: int) -> dict[str, Any]:
    from runnel.server.cli.output import time_text

    return {
        "id": silence.id,
        "state": "active" if silence.is_active(now_ms) else "ended",
        "matchers": [str(matcher) for matcher in silence.matchers],
        "starts": time_text(silence.starts_ms),
        "ends": time_text(silence.ends_ms),
        "who": silence.who,
        "why": silence.why,
    }
