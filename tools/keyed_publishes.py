"""Publishes with idempotency keys under `kill -9`: `python -m tools.keyed_publishes`.

Clients publish records through two gateways to a cluster of three brokers, each with a key of its own, and
repeat every publish with its key until it is answered, at either gateway. Meanwhile gateways and brokers are
killed with SIGKILL, one after the other, and started again, and a subscriber reads, resuming by its cursor.
Some records are sent again after their answer, some keys with another record. At the end every record of the
topic is read and checked: nothing is lost, nothing is stored twice, and all is where the answers said.
"""

import argparse
import asyncio
import contextlib
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runnel.client.sync import SyncClient
from tools.cluster.local import local_cluster
from tools.cluster.nodes import NodeCluster
from tools.gateway_process import GatewayProcess
from tools.http_load import PARTITIONS, TOPIC, Received, follow_events

ATTEMPT_S = 15.0
"""How long a client waits for a response: longer than a gateway waits for the outcome."""

PAUSE_S = 0.05
REPEATED_SHARE = 0.1
"""How many answered records are sent again, and how many keys with another record."""

WINDOW_MS = 3_600_000
END_S = 120.0


@dataclass
class Answers:
    """What the gateways answered."""

    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Value → (partition, offset)."""
    statuses: Counter[int] = field(default_factory=Counter)
    lines_cut: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, value: str, answer: dict[str, Any]) -> None:
        """A record was written here; every answer about it must say the same."""
        place = answer["partition"], answer["offset"]
        if self.places.setdefault(value, place) != place:
            self.wrong.append(f"{value} is at {place}, and was at {self.places[value]}")


class Everything(Received):
    """All that the subscriber has received."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, tuple[int, int]] = {}

    def add(self, message: dict[str, object], cursor: str) -> None:
        """A message, which is the first one with its value, behind the last one of its partition."""
        value, place = str(message["value"]), (int(str(message["partition"])), int(str(message["offset"])))
        if value in self.places:
            self.wrong.append(f"received again: {value} at {place}, and at {self.places[value]}")
        if self.next_number.get(place[0], 0) != place[1]:
            self.wrong.append(f"received out of order: {value} at {place}")
        self.next_number[place[0]] = place[1] + 1
        self.places[value] = place
        self.count += 1
        self.cursor = cursor


async def post(port: int, key: str, record: dict[str, str]) -> tuple[int, dict[str, Any]]:
    """One attempt to publish: the status and the body. OSError or EOFError if the line was cut."""
    async with asyncio.timeout(ATTEMPT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            body = json.dumps(record).encode()
            head = f"POST /topics/{TOPIC}/publish HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            head += f"Content-Type: application/json\r\nIdempotency-Key: {key}\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            status = int((await reader.readline()).split()[1])
            headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(headers.partition("content-length: ")[2].partition("\r\n")[0])
            return status, json.loads(await reader.readexactly(length))
        except (IndexError, ValueError) as error:
            raise EOFError from error
        finally:
            writer.close()


async def publish(
    ports: list[int], key: str, record: dict[str, str], answers: Answers, rng: random.Random
) -> tuple[int, dict[str, Any]]:
    """Send a record with its key until the answer is final."""
    while True:
        try:
            status, answer = await post(rng.choice(ports), key, record)
        except (OSError, EOFError, TimeoutError):
            answers.lines_cut += 1
        else:
            answers.statuses[status] += 1
            if status not in (429, 503, 504):
                return status, answer
        await asyncio.sleep(PAUSE_S)


async def work(worker: int, count: int, ports: list[int], answers: Answers, seed: int) -> None:
    """Publish records, one after the other; some again, and some keys with another record."""
    rng = random.Random(seed * 1000 + worker)
    for number in range(count):
        value = key = f"{worker}-{number}"
        record = {"value": value} if number % 2 else {"key": f"k{number}", "value": value}
        attempts = 1 + (rng.random() < REPEATED_SHARE)
        for _ in range(attempts):
            status, answer = await publish(ports, key, record, answers, rng)
            if status == 200:
                answers.add(value, answer)
            else:
                answers.wrong.append(f"{value}: {status} {answer}")
        if rng.random() < REPEATED_SHARE:
            status, answer = await publish(ports, key, {**record, "value": "another"}, answers, rng)
            if status != 422:
                answers.wrong.append(f"{value}: another record was answered with {status} {answer}")


async def crash(cluster: NodeCluster, gateways: list[GatewayProcess], seed: int, done: asyncio.Event) -> None:
    """Kill a broker or a gateway, and start it again, until the load is done."""
    rng = random.Random(seed)
    while not done.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), rng.uniform(0.5, 2.0))
        if rng.random() < 0.5:
            gateway = rng.choice(gateways)
            await asyncio.to_thread(gateway.end, signal.SIGKILL)
            await asyncio.to_thread(gateway.start)
        else:
            node = rng.choice(list(cluster.nodes.values()))
            await asyncio.to_thread(node.kill)
            await asyncio.sleep(rng.uniform(0.1, 1.5))
            await asyncio.to_thread(node.start)


async def load(
    cluster: NodeCluster, gateways: list[GatewayProcess], workers: int, records: int, seed: int
) -> tuple[Answers, Everything]:
    """The whole load, until every record is answered and received."""
    answers, received = Answers(), Everything()
    ports = [gateway.port for gateway in gateways]
    done = asyncio.Event()
    async with asyncio.TaskGroup() as others:
        others.create_task(crash(cluster, gateways, seed, done))
        following = others.create_task(follow_events(ports[0], workers * records, received))
        async with asyncio.TaskGroup() as tasks:
            for worker in range(workers):
                tasks.create_task(work(worker, records, ports, answers, seed))
        done.set()
        await asyncio.wait((following,), timeout=END_S)
        if not following.done():
            following.cancel()
            received.wrong.append(f"{received.count} messages were received instead of {workers * records}")
    return answers, received


def stored(bootstrap: str) -> dict[str, list[tuple[int, int]]]:
    """Where each value of the topic is."""
    found: dict[str, list[tuple[int, int]]] = {}
    with SyncClient(bootstrap) as client:
        for message in client.read(TOPIC):
            place = message.partition, message.offset
            found.setdefault((message.value or b"").decode(), []).append(place)
    return found


def differences(
    answers: Answers, received: Everything, log: dict[str, list[tuple[int, int]]], expected: int
) -> list[str]:
    """All that is wrong with a run."""
    wrong = answers.wrong + received.wrong
    wrong += [f"stored twice: {value} at {places}" for value, places in log.items() if len(places) > 1]
    wrong += [f"lost: {value} at {place}" for value, place in answers.places.items() if value not in log]
    wrong += [f"never answered: {value}" for value in log if value not in answers.places]
    for value, place in answers.places.items():
        if log.get(value, [place])[0] != place:
            wrong.append(f"{value} is at {log[value][0]}, and was answered at {place}")
        if received.places.get(value, place) != place:
            wrong.append(f"{value} was received at {received.places[value]}, and answered at {place}")
    if len(answers.places) != expected:
        wrong.append(f"{len(answers.places)} records were answered instead of {expected}")
    return wrong


def run(folder: Path, workers: int, records: int, seed: int) -> list[str]:
    """One run, which prints what it did; all that was wrong."""
    began_s = time.monotonic()
    with local_cluster(folder) as cluster:
        with SyncClient(cluster.bootstrap) as client:
            settings = {"dedup.window.ms": str(WINDOW_MS), "min.insync.replicas": "2"}
            client.create_topic(TOPIC, partitions=PARTITIONS, settings=settings)
        with contextlib.ExitStack() as stack:
            gateways = [stack.enter_context(GatewayProcess(cluster.bootstrap)) for _ in range(2)]
            answers, received = asyncio.run(load(cluster, gateways, workers, records, seed))
            log = stored(cluster.bootstrap)
    wrong = differences(answers, received, log, workers * records)
    print(f"{workers * records} records in {time.monotonic() - began_s:.1f} s")
    print(f"answers: {dict(answers.statuses)}, lines cut: {answers.lines_cut}")
    print(f"reconnects of the subscriber: {received.reconnects}")
    print(f"lost, stored twice, or elsewhere: {len(wrong)} {wrong[:5]}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--records", type=int, default=500, help="of each worker")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return 1 if run(Path(folder), options.workers, options.records, options.seed) else 0


if __name__ == "__main__":
    sys.exit(main())
