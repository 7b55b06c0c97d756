"""The demo of a broker. Every step is executed and verified; an unexpected result ends it with an error."""

import asyncio
import json
import signal
import socket
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from runnel.client.admin import Admin
from runnel.client.chunk import Message
from runnel.client.cluster import Cluster
from runnel.client.group_consumer import GroupConsumer
from runnel.client.groups import Groups
from runnel.client.offsets import end_offsets, offsets_since, start_offsets
from runnel.client.producer import Producer
from runnel.client.reader import Reader
from runnel.model.ids import TopicPartition
from runnel.server.bench.measure import Plan, measure
from runnel.server.cli.output import CommandError, size_text, time_text
from runnel.server.demo.events import Order, orders
from runnel.server.demo.process import BrokerProcess
from runnel.server.demo.report import Report

TOPIC = "orders"
GROUP = "billing"
PARTITIONS = 4
HOUR_MS = 60 * 60 * 1000
BENCH_RECORDS = 500_000
CONSOLE_HOST, CONSOLE_PORT = "127.0.0.1", 8080


@dataclass(slots=True)
class Tour:
    """State shared by the steps."""

    report: Report
    broker: BrokerProcess
    orders: list[Order]

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]


async def run_tour(report: Report, order_count: int, *, keep: bool = False) -> None:
    """Run all steps against a broker in a temporary directory; `keep` leaves it and its console running."""
    with tempfile.TemporaryDirectory(prefix="runnel-demo-") as directory:
        now_ms = time.time_ns() // 1_000_000
        with BrokerProcess(Path(directory) / "data") as broker:
            tour = Tour(report, broker, list(orders(order_count, now_ms)))
            start(tour)
            async with Cluster(broker.address, client_id="demo") as cluster:
                await produce(tour, cluster)
                await consume(tour, cluster)
                await replay(tour, cluster)
                await benchmark(tour, cluster)
            await crash(tour)
            if keep:
                await leave_running(tour)
            stop(tour)


def start(tour: Tour) -> None:
    """Start a broker process."""
    tour.report.step("Start a broker")
    with tour.report.working("starting"):
        seconds = tour.broker.start()
    memory = tour.broker.memory_bytes()
    memory_text = f", {size_text(memory)} of memory" if memory else ""
    tour.report.done(
        f"listening on [bold]{tour.broker.address}[/bold] after {seconds * 1000:.0f} ms{memory_text}"
    )


async def produce(tour: Tour, cluster: Cluster) -> None:
    """Produce one day of orders at full speed."""
    tour.report.step(f"Produce {len(tour.orders):,} orders")
    await Admin(cluster).create_topic(TOPIC, partitions=PARTITIONS)
    tour.report.done(f"topic [bold]{TOPIC}[/bold] with {PARTITIONS} partitions")
    began_s = time.perf_counter()
    with tour.report.working("producing"):
        async with Producer(cluster, compression="lz4", linger_ms=5) as producer:
            futures = [
                await producer.send(
                    TOPIC, order.value, key=order.key, headers=order.headers, timestamp_ms=order.timestamp_ms
                )
                for order in tour.orders
            ]
            deliveries = await asyncio.gather(*futures)
    seconds = time.perf_counter() - began_s
    size = sum(len(order.key) + len(order.value) for order in tour.orders)
    tour.report.done(
        f"{len(deliveries):,} orders acknowledged by all replicas, each written once: "
        f"{len(deliveries) / seconds:,.0f}/s, {size / seconds / 1e6:.1f} MB/s"
    )
    spread = Counter(delivery.partition.partition for delivery in deliveries)
    tour.report.bars([(f"partition {number}", spread[number]) for number in range(PARTITIONS)])


async def consume(tour: Tour, cluster: Cluster) -> None:
    """Consume with a group of two members; the second joins later."""
    tour.report.step(f"Consume with group {GROUP}: two members, one rebalance")
    read: list[Message] = []
    read_by_member: Counter[str] = Counter()
    total, half = len(tour.orders), len(tour.orders) // 2

    async def poll(name: str, member: GroupConsumer, count_max: int) -> None:
        messages = await member.poll(0.2, count_max)
        read_by_member[name] += len(messages)
        read.extend(messages)

    anna = _member(tour, cluster, "anna")
    bert = _member(tour, cluster, "bert")
    async with anna, bert:
        while len(read) < half:
            await poll("anna", anna, half - len(read))
        await anna.commit()
        await _show_lag(tour, cluster, "anna has consumed half")
        tour.report.say("[bold]bert[/bold] joins")
        while not bert.assignment:
            await asyncio.gather(poll("anna", anna, 1), poll("bert", bert, 1))
        while len(read) < total:
            await asyncio.gather(poll("anna", anna, 500), poll("bert", bert, 500))
    unique = {(message.partition, message.offset) for message in read}
    _expect(len(unique) == len(read) == total, "an order was consumed twice or not at all")
    shares = " and ".join(f"{count:,} by {name}" for name, count in sorted(read_by_member.items()))
    tour.report.done(f"{len(read):,} orders consumed, each exactly once: {shares}")
    await _show_lag(tour, cluster, "both have committed and left the group")


def _member(tour: Tour, cluster: Cluster, name: str) -> GroupConsumer:
    def report(verb: str, partitions: list[TopicPartition]) -> None:
        numbers = ", ".join(str(partition.partition) for partition in partitions) or "none"
        tour.report.say(f"[bold]{name}[/bold] {verb} partitions {numbers}")

    return GroupConsumer(
        cluster,
        GROUP,
        [TOPIC],
        heartbeat_ms=100,
        on_assigned=lambda partitions: report("is assigned", list(partitions)),
        on_revoked=lambda partitions: report("revokes", list(partitions)),
    )


async def _show_lag(tour: Tour, cluster: Cluster, when: str) -> None:
    committed = await Groups(cluster).committed(GROUP)
    ends = await end_offsets(cluster, tour.partitions)
    rows: list[list[object]] = []
    for partition, end in sorted(ends.items()):
        offset = committed[partition].offset if partition in committed else 0
        rows.append([str(partition), f"{offset:,}", f"{end:,}", f"{end - offset:,}"])
    lag = sum(
        end - (committed[partition].offset if partition in committed else 0)
        for partition, end in ends.items()
    )
    rows.append(["total", "", "", f"{lag:,}"])
    tour.report.table([f"lag when {when}", "committed", "end", "lag"], rows)


async def replay(tour: Tour, cluster: Cluster) -> None:
    """Consume again, from an offset and from a timestamp."""
    tour.report.step("Replay from an offset and from a timestamp")
    partition = tour.partitions[0]
    end = (await end_offsets(cluster, [partition]))[partition]
    middle = end // 2
    messages = await _read(cluster, {partition: middle})
    _expect([message.offset for message in messages] == list(range(middle, end)), "an offset is missing")
    tour.report.done(f"from offset {middle:,} of {partition}: {len(messages):,} orders, the first of them")
    tour.report.say(f"  {_order_text(messages[0])}")
    since_ms = tour.orders[-1].timestamp_ms - 3 * HOUR_MS
    messages = await _read(cluster, await offsets_since(cluster, tour.partitions, since_ms))
    expected = sum(order.timestamp_ms >= since_ms for order in tour.orders)
    _expect(len(messages) == expected, f"expected {expected} orders since {since_ms}, got {len(messages)}")
    revenue = sum(json.loads(message.value or b"{}")["total"] for message in messages)
    tour.report.done(
        f"from {time_text(since_ms)}: {len(messages):,} orders in three hours, worth {revenue:,.2f} €"
    )


async def _read(cluster: Cluster, positions: dict[TopicPartition, int]) -> list[Message]:
    async with Reader(cluster) as reader:
        await reader.assign(positions)
        return [message async for message in reader.messages_to_end()]


def _order_text(message: Message) -> str:
    order = json.loads(message.value or b"{}")
    channel = dict(message.headers).get("channel") or b""
    return (
        f"{time_text(message.timestamp_ms)}  {(message.key or b'').decode()}  {order['total']:.2f} € "
        f"from {order['country']} by {channel.decode()}"
    )


async def benchmark(tour: Tour, cluster: Cluster) -> None:
    """Measure the broker with batches that are built in advance."""
    tour.report.step("Measure throughput and latency")
    plan = Plan(records=BENCH_RECORDS, partitions=1, latency_s=2.0, latency_rate=250)
    with tour.report.working("measuring"):
        result = await measure(cluster, plan, lambda doing, done, total: None)
    tour.report.table(
        [f"{BENCH_RECORDS:,} records of 100 bytes", "records/s", "MB/s"],
        [
            (name, f"{flow.records_per_s:,.0f}", f"{flow.megabytes_per_s:,.0f}")
            for name, flow in (("produce, acks=all", result.produce), ("consume", result.consume))
        ],
    )
    if result.latency is not None:
        tour.report.table(
            ["latency at 250 records/s", "p50 ms", "p99 ms", "max ms"],
            [
                (name, f"{view.p50_ms:.2f}", f"{view.p99_ms:.2f}", f"{view.max_ms:.2f}")
                for name, view in (
                    ("produce", result.latency.produce),
                    ("end to end", result.latency.end_to_end),
                )
            ],
        )


async def crash(tour: Tour) -> None:
    """Kill the broker and verify that recovery restores all records and offsets."""
    tour.report.step("Crash and recovery: kill -9, restart")
    with tour.report.working("crashing and recovering"):
        tour.broker.kill()
        seconds = tour.broker.start()
        async with Cluster(tour.broker.address, client_id="demo") as cluster:
            starts = await start_offsets(cluster, tour.partitions)
            ends = await end_offsets(cluster, tour.partitions)
            committed = await Groups(cluster).committed(GROUP)
    kept = sum(ends.values()) - sum(starts.values())
    _expect(kept == len(tour.orders), f"{len(tour.orders)} orders were acknowledged, {kept} were recovered")
    read = sum(commit.offset for commit in committed.values())
    _expect(read == len(tour.orders), "committed offsets of the group were lost")
    tour.report.done(
        f"recovered after {seconds * 1000:.0f} ms with all {kept:,} orders and the group's committed offsets"
    )


async def leave_running(tour: Tour) -> None:
    """Restart with a console, and wait for Ctrl-C."""
    tour.report.step("Look around in the console")
    tour.broker.stop()
    tour.broker.http = _console_address()
    with tour.report.working("starting the console"):
        tour.broker.start()
        address = tour.broker.console()
    tour.report.done(f"[bold]{address}[/bold] shows the topic {TOPIC} and the group {GROUP}")
    tour.report.say(f"broker: {tour.broker.address}; press Ctrl-C to end the demo")
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()


def _console_address() -> str:
    """The usual address; a free port if that is taken."""
    try:
        with socket.create_server((CONSOLE_HOST, CONSOLE_PORT)):
            return f"{CONSOLE_HOST}:{CONSOLE_PORT}"
    except OSError:
        return f"{CONSOLE_HOST}:0"


def stop(tour: Tour) -> None:
    """Shut down cleanly."""
    code = tour.broker.stop()
    _expect(code == 0, f"the broker exited with status {code}")
    tour.report.done("clean shutdown; the temporary directory is removed")


def _expect(condition: bool, failure: str) -> None:
    if not condition:
        raise CommandError(f"demo failed: {failure}")
