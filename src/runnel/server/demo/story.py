"""The demo's story, told by really doing it; whatever does not come out as it must ends it with an error."""

import asyncio
import json
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
from runnel.server.cli.output import CannotDo, size_text, time_text
from runnel.server.demo.events import Order, orders
from runnel.server.demo.process import BrokerProcess
from runnel.server.demo.report import Report

TOPIC = "orders"
GROUP = "billing"
PARTITIONS = 4
HOUR_MS = 60 * 60 * 1000
BENCH_RECORDS = 500_000


@dataclass(slots=True)
class Story:
    """What all chapters share."""

    report: Report
    broker: BrokerProcess
    orders: list[Order]

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]


async def tell(report: Report, order_count: int) -> None:
    """The broker's story, from an empty folder to an empty folder."""
    with tempfile.TemporaryDirectory(prefix="runnel-demo-") as folder:
        now_ms = time.time_ns() // 1_000_000
        with BrokerProcess(Path(folder) / "data") as broker:
            story = Story(report, broker, list(orders(order_count, now_ms)))
            start(story)
            async with Cluster(broker.address, client_id="demo") as cluster:
                await publish(story, cluster)
                await share(story, cluster)
                await replay(story, cluster)
                await hurry(story, cluster)
            await crash(story)
            stop(story)


def start(story: Story) -> None:
    """A broker of our own."""
    story.report.chapter("A broker starts")
    with story.report.working("starting"):
        seconds = story.broker.start()
    memory = story.broker.memory_bytes()
    told = f", {size_text(memory)} of memory" if memory else ""
    story.report.done(f"listens at [bold]{story.broker.address}[/bold] after {seconds * 1000:.0f} ms{told}")


async def publish(story: Story, cluster: Cluster) -> None:
    """A day of orders, as fast as they go."""
    story.report.chapter(f"A shop publishes {len(story.orders):,} orders of one day")
    await Admin(cluster).create_topic(TOPIC, partitions=PARTITIONS)
    story.report.done(f"topic [bold]{TOPIC}[/bold] with {PARTITIONS} partitions")
    began_s = time.perf_counter()
    with story.report.working("publishing"):
        async with Producer(cluster, compression="lz4", linger_ms=5) as producer:
            futures = [
                await producer.send(
                    TOPIC, order.value, key=order.key, headers=order.headers, timestamp_ms=order.timestamp_ms
                )
                for order in story.orders
            ]
            deliveries = await asyncio.gather(*futures)
    seconds = time.perf_counter() - began_s
    size = sum(len(order.key) + len(order.value) for order in story.orders)
    story.report.done(
        f"{len(deliveries):,} orders acknowledged by all replicas, each written once: "
        f"{len(deliveries) / seconds:,.0f}/s, {size / seconds / 1e6:.1f} MB/s"
    )
    spread = Counter(delivery.partition.partition for delivery in deliveries)
    story.report.bars([(f"partition {number}", spread[number]) for number in range(PARTITIONS)])


async def share(story: Story, cluster: Cluster) -> None:
    """Two consumers share the work; the second comes later."""
    story.report.chapter(f"The group {GROUP} reads them, with two members")
    read: list[Message] = []
    by_whom: Counter[str] = Counter()
    total, half = len(story.orders), len(story.orders) // 2

    async def poll(name: str, member: GroupConsumer, most: int) -> None:
        messages = await member.poll(0.2, most)
        by_whom[name] += len(messages)
        read.extend(messages)

    anna = _member(story, cluster, "anna")
    bert = _member(story, cluster, "bert")
    async with anna, bert:
        while len(read) < half:
            await poll("anna", anna, half - len(read))
        await anna.commit()
        await _show_lag(story, cluster, "anna has read half")
        story.report.say("[bold]bert[/bold] joins")
        while not bert.assignment:
            await asyncio.gather(poll("anna", anna, 1), poll("bert", bert, 1))
        while len(read) < total:
            await asyncio.gather(poll("anna", anna, 500), poll("bert", bert, 500))
    unique = {(message.partition, message.offset) for message in read}
    _expect(len(unique) == len(read) == total, "an order was read twice or not at all")
    shares = " and ".join(f"{count:,} by {name}" for name, count in sorted(by_whom.items()))
    story.report.done(f"{len(read):,} orders read, each exactly once: {shares}")
    await _show_lag(story, cluster, "both have committed and left")


def _member(story: Story, cluster: Cluster, name: str) -> GroupConsumer:
    def tell(verb: str, partitions: list[TopicPartition]) -> None:
        numbers = ", ".join(str(partition.partition) for partition in partitions) or "none"
        story.report.say(f"[bold]{name}[/bold] {verb} partitions {numbers}")

    return GroupConsumer(
        cluster,
        GROUP,
        [TOPIC],
        heartbeat_ms=100,
        on_assigned=lambda partitions: tell("gets", list(partitions)),
        on_revoked=lambda partitions: tell("gives back", list(partitions)),
    )


async def _show_lag(story: Story, cluster: Cluster, when: str) -> None:
    committed = await Groups(cluster).committed(GROUP)
    ends = await end_offsets(cluster, story.partitions)
    rows: list[list[object]] = []
    for partition, end in sorted(ends.items()):
        offset = committed[partition].offset if partition in committed else 0
        rows.append([str(partition), f"{offset:,}", f"{end:,}", f"{end - offset:,}"])
    lag = sum(
        end - (committed[partition].offset if partition in committed else 0)
        for partition, end in ends.items()
    )
    rows.append(["together", "", "", f"{lag:,}"])
    story.report.table([f"lag when {when}", "committed", "end", "lag"], rows)


async def replay(story: Story, cluster: Cluster) -> None:
    """The past is still there: from an offset, and from a moment."""
    story.report.chapter("Somebody reads the past again")
    partition = story.partitions[0]
    end = (await end_offsets(cluster, [partition]))[partition]
    middle = end // 2
    messages = await _read(cluster, {partition: middle})
    _expect([message.offset for message in messages] == list(range(middle, end)), "an offset is missing")
    story.report.done(f"from offset {middle:,} of {partition}: {len(messages):,} orders, the first of them")
    story.report.say(f"  {_shown(messages[0])}")
    since_ms = story.orders[-1].timestamp_ms - 3 * HOUR_MS
    messages = await _read(cluster, await offsets_since(cluster, story.partitions, since_ms))
    expected = sum(order.timestamp_ms >= since_ms for order in story.orders)
    _expect(len(messages) == expected, f"{expected} orders were expected since then, {len(messages)} came")
    revenue = sum(json.loads(message.value or b"{}")["total"] for message in messages)
    story.report.done(
        f"from {time_text(since_ms)}: {len(messages):,} orders in three hours, worth {revenue:,.2f} €"
    )


async def _read(cluster: Cluster, positions: dict[TopicPartition, int]) -> list[Message]:
    async with Reader(cluster) as reader:
        await reader.assign(positions)
        return [message async for message in reader.messages_to_end()]


def _shown(message: Message) -> str:
    order = json.loads(message.value or b"{}")
    channel = dict(message.headers).get("channel") or b""
    return (
        f"{time_text(message.timestamp_ms)}  {(message.key or b'').decode()}  {order['total']:.2f} € "
        f"from {order['country']} by {channel.decode()}"
    )


async def hurry(story: Story, cluster: Cluster) -> None:
    """What the broker itself can do, without a client that builds records one by one."""
    story.report.chapter("How fast is the broker itself?")
    plan = Plan(records=BENCH_RECORDS, partitions=1, latency_s=2.0, latency_rate=250)
    with story.report.working("measuring"):
        result = await measure(cluster, plan, lambda doing, done, total: None)
    story.report.table(
        [f"{BENCH_RECORDS:,} records of 100 bytes", "records/s", "MB/s"],
        [
            (name, f"{flow.records_per_s:,.0f}", f"{flow.megabytes_per_s:,.0f}")
            for name, flow in (("produce, acks=all", result.produce), ("consume", result.consume))
        ],
    )
    if result.latency is not None:
        story.report.table(
            ["latency at 250 records/s", "p50 ms", "p99 ms", "max ms"],
            [
                (name, f"{view.p50_ms:.2f}", f"{view.p99_ms:.2f}", f"{view.max_ms:.2f}")
                for name, view in (
                    ("until acknowledged", result.latency.produce),
                    ("until a consumer has it", result.latency.end_to_end),
                )
            ],
        )


async def crash(story: Story) -> None:
    """kill -9, and everything is still there."""
    story.report.chapter("The broker is killed with kill -9, and comes back")
    with story.report.working("crashing and recovering"):
        story.broker.kill()
        seconds = story.broker.start()
        async with Cluster(story.broker.address, client_id="demo") as cluster:
            starts = await start_offsets(cluster, story.partitions)
            ends = await end_offsets(cluster, story.partitions)
            committed = await Groups(cluster).committed(GROUP)
    kept = sum(ends.values()) - sum(starts.values())
    _expect(kept == len(story.orders), f"{len(story.orders)} orders were acknowledged, {kept} are there")
    read = sum(commit.offset for commit in committed.values())
    _expect(read == len(story.orders), "the group has forgotten how far it had read")
    story.report.done(f"back after {seconds * 1000:.0f} ms with all {kept:,} orders and the group's offsets")


def stop(story: Story) -> None:
    """A clean end."""
    code = story.broker.stop()
    _expect(code == 0, f"the broker ended with {code}")
    story.report.done("stopped cleanly; the temporary folder is removed")


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise CannotDo(f"the demo went wrong: {otherwise}")
