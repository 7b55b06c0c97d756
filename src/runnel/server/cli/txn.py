"""`runnel txn …`: list and describe transactions, find and abort hanging ones."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap, Json, Yes

if TYPE_CHECKING:
    from runnel.client.cluster import Cluster
    from runnel.client.transactions import HangingTransaction, TransactionView
    from runnel.model.ids import TopicPartition

app = typer.Typer(help="List and describe transactions, find and abort hanging ones.", no_args_is_help=True)


class State(StrEnum):
    """Kafka's transaction states."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"


TransactionalId = Annotated[
    str, typer.Argument(metavar="TRANSACTIONAL_ID", help="Transactional id.", show_default=False)
]
States = Annotated[
    list[State] | None,
    typer.Option(
        "--state",
        metavar="STATE",
        case_sensitive=False,
        help="Filter by state: Ongoing, PrepareCommit, CompleteCommit, CompleteAbort, … Repeatable.",
    ),
]
ProducerIds = Annotated[
    list[int] | None, typer.Option("--producer-id", help="Filter by producer id. Repeatable.")
]
LongerThan = Annotated[
    str | None,
    typer.Option("--longer-than", metavar="DURATION", help="Filter by age: 30s, 15m, 2h."),
]
Pattern = Annotated[str | None, typer.Option("--id", metavar="REGEX", help="Filter by transactional id.")]


@app.command("list")
def list_transactions(
    states: States = None,
    producer_ids: ProducerIds = None,
    longer_than: LongerThan = None,
    pattern: Pattern = None,
    as_json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """List transactional ids and the states of their transactions.

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
    """Describe a transactional id: producer, state, start time and partitions of its transaction.

    Example: runnel txn describe billing-1
    """
    from runnel.client.transactions import Transactions
    from runnel.server.cli.output import print_fields, print_json, time_text
    from runnel.server.cli.partitions import partitions_text
    from runnel.server.cli.session import with_cluster

    view = with_cluster(bootstrap, lambda cluster: Transactions(cluster).describe(transactional_id))
    started = None if view.started_ms is None else time_text(view.started_ms)
    if as_json:
        print_json(_document(view, started))
        return
    print_fields(
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
        help="Topic, optionally with partitions: orders:0,2. Repeatable.",
    ),
]
Silent = Annotated[
    str,
    typer.Option("--silent", metavar="DURATION", help="Minimum time since the last write: 15m, 2h."),
]


@app.command("find-hanging")
def find_hanging(
    topics: Topics = None,
    silent: Silent = "15m",
    as_json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Find transactions that are open in a partition but unknown to their coordinator.

    A hanging transaction holds back the last stable offset, read_committed consumers and compaction: abort
    it with `runnel txn abort`. Long-running transactions are not hanging: see `runnel txn list`.

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
    typer.Argument(metavar="[TRANSACTIONAL_ID]", help="Transactional id.", show_default=False),
]
Topic = Annotated[str | None, typer.Option("--topic", "-t", help="Topic of a hanging transaction.")]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="Partition of a hanging transaction.")
]
StartOffset = Annotated[
    int | None,
    typer.Option("--start-offset", min=0, help="Start offset of a hanging transaction."),
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
    """Abort an open transaction by its transactional id, or a hanging one by its start offset.

    Aborting by id fences the producer: its next request fails. Aborting by start offset writes an abort
    marker to that partition without its coordinator: only for results of `runnel txn find-hanging`.

    Example: runnel txn abort billing-1

    Example: runnel txn abort --topic orders --partition 0 --start-offset 1044 --yes
    """
    from runnel.model.ids import TopicPartition
    from runnel.server.cli.session import with_cluster

    position = (topic, partition, start_offset)
    if transactional_id is not None and position == (None, None, None):
        with_cluster(bootstrap, lambda cluster: _abort_by_id(cluster, transactional_id, yes))
    elif (
        transactional_id is None and topic is not None and partition is not None and start_offset is not None
    ):
        where = TopicPartition(topic, partition)
        with_cluster(bootstrap, lambda cluster: _abort_hanging(cluster, where, start_offset, yes))
    else:
        raise typer.BadParameter(
            "specify a TRANSACTIONAL_ID, or --topic, --partition and --start-offset of a hanging transaction"
        )


async def _abort_by_id(cluster: "Cluster", transactional_id: str, yes: bool) -> None:
    from runnel.client.transactions import ONGOING, OPEN, Transactions
    from runnel.server.cli.confirm import confirm
    from runnel.server.cli.output import CommandError, print_info
    from runnel.server.cli.partitions import partitions_text

    transactions = Transactions(cluster)
    view = await transactions.describe(transactional_id)
    if view.state != ONGOING:
        reason = "is already completing" if view.state in OPEN else "has no open transaction"
        raise CommandError(f"{transactional_id} {reason} (state {view.state})")
    where = partitions_text(view.partitions)
    confirm(f"abort the transaction of {transactional_id} in {where} and fence its producer?", yes)
    await transactions.init_producer_id(transactional_id, timeout_ms=view.timeout_ms)
    print_info(f"aborted the transaction of {transactional_id}")


async def _abort_hanging(cluster: "Cluster", where: "TopicPartition", start_offset: int, yes: bool) -> None:
    from runnel.client.transactions import Transactions
    from runnel.server.cli.confirm import confirm
    from runnel.server.cli.output import CommandError, print_info

    transactions = Transactions(cluster)
    hanging = await transactions.hanging([where], silent_since_ms=2**63 - 1)
    # Described again: a transaction that completed in the meantime looked hanging.
    producers = await transactions.producers([where])
    found = [producer for producer in producers if producer.start_offset == start_offset]
    if not found:
        raise CommandError(f"no open transaction in {where} starts at offset {start_offset}")
    [producer] = found
    if producer.producer_id not in {one.producer.producer_id for one in hanging}:
        # A marker without the coordinator could abort in this partition what it commits in others.
        raise CommandError(
            f"the transaction of producer {producer.producer_id} is not hanging, its coordinator knows it: "
            f"abort it by its id, see `runnel txn list --producer-id {producer.producer_id}`"
        )
    confirm(
        f"abort the transaction of producer {producer.producer_id} in {where} at offset {start_offset}?", yes
    )
    await transactions.abort_hanging(producer)
    print_info(f"aborted the transaction of producer {producer.producer_id} in {where}")
