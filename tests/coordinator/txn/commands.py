"""The commands of the transaction transcripts.

    init ID [timeout=] [as=PRODUCER:EPOCH]
    add ID PRODUCER:EPOCH TOPIC-N …                    AddPartitionsToTxn, in the original protocol
    produce ID PRODUCER:EPOCH TOPIC-N VALUE [classic]  in transaction V2 this adds the partition as well
    end ID PRODUCER:EPOCH commit|abort [classic]
    read TOPIC-N                                       what a read_committed consumer reads
    all TOPIC-N                                        all records, markers in brackets
    describe ID · list [states=]
    wait MILLISECONDS · jump MILLISECONDS · reload · set NAME=NUMBER · set-epoch ID EPOCH
    log refuses ERROR · log works · commits wait · commits go · markers wait · markers go
    trouble TOPIC-N ERROR · heal TOPIC-N

A producer and its epoch are written 1:0. `log ID STATE …` lines show the records of the log.
"""

from collections.abc import Callable
from dataclasses import replace

from runnel.coordinator.contract import CoordinatorResult
from runnel.coordinator.txn.describe import STATES
from runnel.coordinator.txn.records import transaction_record
from runnel.coordinator.txn.settings import TRANSACTION_V2
from runnel.coordinator.txn.transaction import TransactionState
from runnel.messages.end_txn import EndTxnRequest, EndTxnResponse
from runnel.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import TopicPartition
from runnel.schemas.coordinator import CoordinatorRecord
from runnel.schemas.txn import TransactionLogKey, TransactionLogValue
from tests.coordinator.txn.world import World

CLASSIC, NEW = 4, 5
"""Versions of EndTxn."""


def named(text: str) -> TopicPartition:
    topic, _, index = text.rpartition("-")
    return TopicPartition(topic, int(index))


def identity(text: str) -> tuple[int, int]:
    producer_id, _, epoch = text.partition(":")
    return int(producer_id), int(epoch)


class Commands:
    """Runs transcript commands against a shard."""

    def __init__(self) -> None:
        self.world = World(on_record=self.show_record)
        self.lines: list[str] = []
        self.commands: dict[str, Callable[[list[str], dict[str, str]], None]] = {
            "init": self.init,
            "add": self.add,
            "produce": self.produce,
            "end": self.end,
            "read": self.read,
            "all": self.read_all,
            "describe": self.describe,
            "list": self.list_all,
            "wait": lambda plain, _: self.world.wait(int(plain[0])),
            "jump": self.jump,
            "reload": lambda plain, _: self.world.reload(),
            "set": self.set_setting,
            "set-epoch": self.set_epoch,
            "log": self.set_log,
            "commits": self.set_commits,
            "markers": self.set_markers,
            "trouble": self.trouble,
            "heal": self.heal,
        }

    def play(self, command: str) -> list[str]:
        """Run one command; returns its output lines."""
        verb, *words = command.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        self.lines = []
        try:
            self.commands[verb]([word for word in words if "=" not in word], options)
        except ApiError as error:
            self.lines.append(f"refused {error.error.name}")
        return self.lines

    def show_record(self, record: CoordinatorRecord) -> None:
        match record.key, record.value:
            case TransactionLogKey(name), TransactionLogValue() as value:
                parts = [
                    f" {schema.topic}-{index}"
                    for schema in value.transaction_partitions or []
                    for index in schema.partition_ids
                ]
                state = TransactionState(value.transaction_status).display_name
                holder = f"{value.producer_id}:{value.producer_epoch}"
                self.lines.append(f"log {name} {state} {holder}{''.join(parts)}")
            case TransactionLogKey(name), None:
                self.lines.append(f"log {name} removed")

    def say(self, outcome: object) -> None:
        match outcome:
            case ErrorCode():
                self.lines.append(f"refused {outcome.name}")
            case InitProducerIdResponse(error_code=0) | EndTxnResponse(error_code=0):
                who = f" {outcome.producer_id}:{outcome.producer_epoch}" if outcome.producer_id >= 0 else ""
                verb = "is" if isinstance(outcome, InitProducerIdResponse) else "ended"
                self.lines.append(f"{verb}{who}")
            case InitProducerIdResponse() | EndTxnResponse():
                self.lines.append(f"refused {ErrorCode.from_code(outcome.error_code).name}")

    def init(self, plain: list[str], options: dict[str, str]) -> None:
        producer_id, epoch = identity(options.get("as", "-1:-1"))
        request = InitProducerIdRequest(plain[0], int(options.get("timeout", 60_000)), producer_id, epoch)
        self.say(self.world.ask(lambda: self.world.shard.init_producer_id(request, self.world.now())))

    def add(self, plain: list[str], options: dict[str, str]) -> None:
        name, who, *partitions = plain
        self._add(name, who, list(map(named, partitions)), 0)
        self.lines.append("added")

    def produce(self, plain: list[str], options: dict[str, str]) -> None:
        name, who, partition, value, *protocol = plain
        place = named(partition)
        target = self.world.partition(place)
        if not target.is_open_for(*identity(who)):
            if protocol:
                errors = self.world.shard.verify_partitions(name, *identity(who), [place])
            else:
                errors = self._add(name, who, [place], TRANSACTION_V2)
            if errors[place] is not ErrorCode.NONE:
                raise ApiError(errors[place])
        target.write(*identity(who), value)
        self.lines.append("written")

    def _add(
        self, name: str, who: str, partitions: list[TopicPartition], version: int
    ) -> dict[TopicPartition, ErrorCode]:
        world = self.world
        outcome = world.ask(
            lambda: world.shard.add_partitions(name, *identity(who), partitions, version, world.now())
        )
        if isinstance(outcome, ErrorCode):
            raise ApiError(outcome)
        errors: dict[TopicPartition, ErrorCode] = outcome
        return errors

    def end(self, plain: list[str], options: dict[str, str]) -> None:
        name, who, wish, *protocol = plain
        request = EndTxnRequest(name, *identity(who), wish == "commit")
        version = CLASSIC if protocol else NEW
        self.say(self.world.ask(lambda: self.world.shard.end(request, version, self.world.now())))

    def read(self, plain: list[str], options: dict[str, str]) -> None:
        self.lines.append(" ".join(self.world.partition(named(plain[0])).committed()) or "nothing")

    def read_all(self, plain: list[str], options: dict[str, str]) -> None:
        ends = {True: "[commit]", False: "[abort]"}
        entries = self.world.partition(named(plain[0])).entries
        shown = [entry if isinstance(entry, str) else ends[entry] for _, entry in entries]
        self.lines.append(" ".join(shown) or "nothing")

    def describe(self, plain: list[str], options: dict[str, str]) -> None:
        known = self.world.shard.describe(plain[0])
        if known.error_code:
            raise ApiError(ErrorCode.from_code(known.error_code))
        parts = [f" {topic.topic}-{index}" for topic in known.topics for index in topic.partitions]
        holder = f"{known.producer_id}:{known.producer_epoch}"
        since_ms = known.transaction_start_time_ms
        timeout_ms = known.transaction_timeout_ms
        self.lines.append(
            f"{known.transaction_state} {holder} since {since_ms} for {timeout_ms}{''.join(parts)}"
        )

    def list_all(self, plain: list[str], options: dict[str, str]) -> None:
        states = [STATES[name] for name in options["states"].split(",")] if "states" in options else None
        now_ms = self.world.now().wall_ms
        open_min_ms = int(options.get("open", -1))
        for known in self.world.shard.list_transactions(states, [], open_min_ms, None, now_ms):
            self.lines.append(f"{known.transactional_id} {known.transaction_state} {known.producer_id}")

    def set_setting(self, plain: list[str], options: dict[str, str]) -> None:
        for name, number in options.items():
            assert hasattr(self.world.settings, name)
            setattr(self.world.settings, name, int(number))

    def set_epoch(self, plain: list[str], options: dict[str, str]) -> None:
        name, epoch = plain
        known = self.world.shard.store.transactions[name]
        record = transaction_record(replace(known, epoch=int(epoch)), TRANSACTION_V2)
        self.world.carry_out(CoordinatorResult(records=[record]))

    def set_log(self, plain: list[str], options: dict[str, str]) -> None:
        self.world.log_refuses = ErrorCode[plain[1]] if plain[0] == "refuses" else None

    def set_commits(self, plain: list[str], options: dict[str, str]) -> None:
        self.world.commits_wait = plain[0] == "wait"
        self.world.go_on()

    def jump(self, plain: list[str], options: dict[str, str]) -> None:
        self.world.jumped_ms += int(plain[0])

    def set_markers(self, plain: list[str], options: dict[str, str]) -> None:
        self.world.markers_wait = plain[0] == "wait"
        self.world.go_on()

    def trouble(self, plain: list[str], options: dict[str, str]) -> None:
        self.world.partition(named(plain[0])).error = ErrorCode[plain[1]]

    def heal(self, plain: list[str], options: dict[str, str]) -> None:
        self.world.partition(named(plain[0])).error = None
