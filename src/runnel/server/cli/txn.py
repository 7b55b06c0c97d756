"""`runnel txn …`: look at transactions, and end those that nobody ends."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap, Json, Yes

if TYPE_CHECKING:
    from runnel.client.cluster import Cluster
    from runnel.client.transactions import HangingTransaction, TransactionView
    from runnel.model.ids import TopicPartition

app = typer.Typer(help="Look at transactions, and end those that nobody ends.", no_args_is_help=True)


class State(StrEnum):
    """Where a transaction stands, in Kafka's words."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"


TransactionalId = Annotated[
    str, typer.Argument(metavar="TRANSACTIONAL_ID", help="The transactional id.", show_default=False)
]
States = Annotated[
    list[State] | None,
    typer.Option(
        "--state",
        metavar="STATE",
        case_sensitive=False,
        help="Only in this state, as Ongoing, PrepareCommit, CompleteCommit or CompleteAbort. "
        "May be repeated.",
    ),
]
ProducerIds = Annotated[
    list[int] | None, typer.Option("--producer-id", help="Only of this producer. May be repeated.")
]
LongerThan = Annotated[
    str | None,
    typer.Option("--longer-than", metavar="DURATION", help="Only those that began longer ago: 30s, 15m, 2h."),
]
Pattern = Annotated[
    str | None, typer.Option("--id", metavar="REGEX", help="Only ids that match this regular expression.")
]


@app.command("list")
def list_transactions(
    states: States = None,
    producer_ids: ProducerIds = None,
    longer_than: LongerThan = None,
    pattern: Pattern = None,
    as_json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """List the transactional ids and where their transactions stand.

    Example: runnel txn list

    Example: runnel txn list --state Ongoing --longer-than 10m

    Example: runnel txn list --id 'billing-.*' --json
    """
    from runnel.client.transactions import Transactions
    from runnel.server.cli.options import parse_duration_ms
    from runnel.server.cli.output import print_json, print_table
    from runnel.server.cli.session import with_cluster

    longer_than_ms = None if longer_than is None else parse_duration_ms(longer_than)
    listings = with_cluster(
        bootstrap,
        lambda cluster: Transactions(cluster).find(
            states=[state.value for state in states or ()],
            producer_ids=producer_ids or (),
            longer_than_ms=longer_than_ms,
            pattern=pattern,
        ),
    )
    columns = ["transactional_id", "state", "producer_id", "coordinator"]
    rows = [[getattr(view, column) for column in columns] for view in listings]
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table([column.replace("_", " ") for column in columns], rows, empty="no transactions")


@app.command()
def describe(
    transactional_id: TransactionalId, as_json: Json = False, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT
) -> None:
    """Show who holds a transactional id, and what its open transaction has written to since when.

    Example: runnel txn describe billing-1
    """
    from runnel.client.transactions import Transactions
    from runnel.server.cli.output import print_facts, print_json, time_text
    from runnel.server.cli.partitions import partitions_text
    from runnel.server.cli.session import with_cluster

    view = with_cluster(bootstrap, lambda cluster: Transactions(cluster).describe(transactional_id))
    started = None if view.started_ms is None else time_text(view.started_ms)
    if as_json:
        print_json(_document(view, started))
        return
    print_facts(
        {
            "transactional id": view.transactional_id,
            "state": view.state,
            "coordinator": f"broker {view.coordinator}",
            "producer": f"{view.producer_id}, epoch {view.producer_epoch}",
            "timeout": f"{view.timeout_ms} ms",
            "started": "-" if started is None else f"{started} ({_age(view)} ago)",
            "partitions": partitions_text(view.partitions) or "-",
        }
    )


def _document(view: "TransactionView", started: str | None) -> dict[str, Any]:
    return {
        "transactional_id": view.transactional_id,
        "state": view.state,
        "coordinator": view.coordinator,
        "producer_id": view.producer_id,
        "producer_epoch": view.producer_epoch,
        "timeout_ms": view.timeout_ms,
        "started": started,
        "started_ms": view.started_ms,
        "partitions": [{"topic": name.topic, "partition": name.partition} for name in view.partitions],
    }


def _age(view: "TransactionView") -> str:
    import time

    seconds = max(int(time.time() - (view.started_ms or 0) / 1000), 0)
    minutes, hours = seconds // 60 % 60, seconds // 3600
    return f"{hours}h{minutes}m" if hours else f"{minutes}m{seconds % 60}s" if minutes else f"{seconds}s"


Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:PARTITIONS]",
        help="Look only into this topic, or some of its partitions: orders:0,2. May be repeated.",
    ),
]
Silent = Annotated[
    str,
    typer.Option(
        "--silent", metavar="DURATION", help="Only those that have written nothing for so long: 15m, 2h."
    ),
]


@app.command("find-hanging")
def find_hanging(
    topics: Topics = None,
    silent: Silent = "15m",
    as_json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Find transactions that are open in a partition although their coordinator does not know of them.

    Readers of committed records wait behind such a transaction for ever, and compaction too: end it with
    `runnel txn abort`. Transactions that merely take long are not hanging: see `runnel txn list`.

    Example: runnel txn find-hanging

    Example: runnel txn find-hanging --topic orders --silent 1h --json
    """
    from runnel.server.cli.options import parse_duration_ms
    from runnel.server.cli.output import print_json, print_table
    from runnel.server.cli.session import with_cluster

    silent_ms = parse_duration_ms(silent)
    found = with_cluster(bootstrap, lambda cluster: _hanging(cluster, topics, silent_ms))
    rows = [_hanging_row(hanging) for hanging in found]
    if as_json:
        print_json(rows)
    else:
        columns = [name.replace("_", " ") for name in _HANGING_COLUMNS]
        print_table(columns, [list(row.values()) for row in rows], empty="no hanging transactions")


_HANGING_COLUMNS = [
    "topic",
    "partition",
    "start_offset",
    "producer_id",
    "producer_epoch",
    "coordinator_epoch",
    "last_write",
    "transactional_id",
]


def _hanging_row(hanging: "HangingTransaction") -> dict[str, Any]:
    from runnel.server.cli.output import time_text

    producer = hanging.producer
    values = (
        producer.partition.topic,
        producer.partition.partition,
        producer.start_offset,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        time_text(producer.last_timestamp_ms),
        hanging.transactional_id,
    )
    return dict(zip(_HANGING_COLUMNS, values, strict=True))


async def _hanging(
    cluster: "Cluster", topics: list[str] | None, silent_ms: int
) -> "list[HangingTransaction]":
    import time

    from runnel.client.transactions import Transactions
    from runnel.model.ids import TopicPartition
    from runnel.server.cli.reset import chosen_partitions

    if topics:
        partitions = await chosen_partitions(cluster, topics)
    else:
        partitions = [
            TopicPartition(topic.name, view.partition)
            for topic in await cluster.topics()
            for view in topic.partitions
            if view.leader >= 0
        ]
    silent_since_ms = time.time_ns() // 1_000_000 - silent_ms
    return await Transactions(cluster).hanging(partitions, silent_since_ms=silent_since_ms)


MaybeTransactionalId = Annotated[
    str | None,
    typer.Argument(metavar="[TRANSACTIONAL_ID]", help="Whose transaction.", show_default=False),
]
Topic = Annotated[str | None, typer.Option("--topic", "-t", help="A hanging one: where it is.")]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="A hanging one: where it is.")
]
StartOffset = Annotated[
    int | None,
    typer.Option("--start-offset", min=0, help="A hanging one: where it begins, in its partition."),
]


@app.command()
def abort(
    transactional_id: MaybeTransactionalId = None,
    topic: Topic = None,
    partition: Partition = None,
    start_offset: StartOffset = None,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Abort an open transaction by its transactional id, or a hanging one by where it begins.

    By id, its producer is fenced: if it is still there, its next request fails. By place, an abort marker is
    written into that one partition, past the coordinator: only for what `runnel txn find-hanging` shows.

    Example: runnel txn abort billing-1

    Example: runnel txn abort --topic orders --partition 0 --start-offset 1044 --yes
    """
    from runnel.model.ids import TopicPartition
    from runnel.server.cli.session import with_cluster

    place = (topic, partition, start_offset)
    if transactional_id is not None and place == (None, None, None):
        with_cluster(bootstrap, lambda cluster: _abort_by_id(cluster, transactional_id, yes))
    elif (
        transactional_id is None and topic is not None and partition is not None and start_offset is not None
    ):
        where = TopicPartition(topic, partition)
        with_cluster(bootstrap, lambda cluster: _abort_hanging(cluster, where, start_offset, yes))
    else:
        raise typer.BadParameter(
            "say which: a TRANSACTIONAL_ID, or --topic, --partition and --start-offset of a hanging one"
        )


async def _abort_by_id(cluster: "Cluster", transactional_id: str, yes: bool) -> None:
    from runnel.client.transactions import ONGOING, OPEN, Transactions
    from runnel.server.cli.confirm import confirm
    from runnel.server.cli.output import CannotDo, note
    from runnel.server.cli.partitions import partitions_text

    transactions = Transactions(cluster)
    view = await transactions.describe(transactional_id)
    if view.state != ONGOING:
        is_ending = view.state in OPEN
        reason = "is being ended already" if is_ending else "has no open transaction"
        raise CannotDo(f"{transactional_id} {reason} (it is in state {view.state})")
    where = partitions_text(view.partitions)
    confirm(
        f"abort what {transactional_id} has written to {where} since it began, and fence its producer?", yes
    )
    await transactions.take_over(transactional_id, timeout_ms=view.timeout_ms)
    note(f"aborted the transaction of {transactional_id}")


async def _abort_hanging(cluster: "Cluster", where: "TopicPartition", start_offset: int, yes: bool) -> None:
    from runnel.client.transactions import Transactions
    from runnel.server.cli.confirm import confirm
    from runnel.server.cli.output import CannotDo, note

    transactions = Transactions(cluster)
    hanging = await transactions.hanging([where], silent_since_ms=2**63 - 1)
    # Asked again after the coordinator was: what ended meanwhile looked as if nobody knew of it.
    producers = await transactions.producers([where])
    found = [producer for producer in producers if producer.start_offset == start_offset]
    if not found:
        raise CannotDo(f"no transaction that is open in {where} begins at offset {start_offset}")
    [producer] = found
    if producer.producer_id not in {one.producer.producer_id for one in hanging}:
        # A marker past the coordinator would tear it: aborted here, perhaps committed elsewhere.
        raise CannotDo(
            f"this transaction of producer {producer.producer_id} is not hanging, its coordinator knows it: "
            f"find its id with `runnel txn list --producer-id {producer.producer_id}`, and abort that"
        )
    confirm(
        f"abort what producer {producer.producer_id} has written to {where} since offset {start_offset}?", yes
    )
    await transactions.abort_hanging(producer)
    note(f"aborted the transaction of producer {producer.producer_id} in {where}")
