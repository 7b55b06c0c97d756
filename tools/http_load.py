"""Many streams on one gateway: `python -m tools.http_load`.

Opens streams of server-sent events and WebSockets on a topic with several partitions, publishes meanwhile,
kills the gateway with SIGKILL in between, and starts another one on the same port. Clients resume by their
last cursor. Reports memory and CPU of the gateway, and verifies that every client has received every message
exactly once, in the order of its partition.
"""

import argparse
import asyncio
import contextlib
import json
import resource
import signal
import sys
import time
from dataclasses import dataclass, field

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from runnel.testing import Broker
from tools.gateway_process import GatewayProcess
from tools.processes import cpu_seconds, memory_peak_bytes

TOPIC = "load"
PARTITIONS = 4
PAUSE_S = 0.2


@dataclass
class Received:
    """What a client has received: the numbers of each partition, and where it resumes."""

    cursor: str = ""
    count: int = 0
    reconnects: int = 0
    wrong: list[str] = field(default_factory=list)
    next_number: dict[int, int] = field(default_factory=dict)

    def add(self, message: dict[str, object], cursor: str) -> None:
        """A message: the next number of its partition, or an error."""
        number, partition = int(str(message["value"])), int(str(message["partition"]))
        expected = self.next_number.get(partition, partition)
        if number != expected:
            self.wrong.append(f"partition {partition}: {number} instead of {expected}")
        self.next_number[partition] = number + PARTITIONS
        self.count += 1
        self.cursor = cursor


class MeteredGateway(GatewayProcess):
    """A gateway, and what all its processes have used."""

    cpu_s = 0.0
    memory_bytes = 0

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it with a signal, and add what it has used."""
        if self.is_running:
            self.cpu_s += cpu_seconds(self.pid)
            self.memory_bytes = max(self.memory_bytes, memory_peak_bytes(self.pid))
        super().end(number)


async def follow_events(port: int, total: int, received: Received) -> None:
    """Read events until all messages are received; reconnect when the line is cut."""
    while received.count < total:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            try:
                await read_events(reader, writer, total, received)
            finally:
                writer.close()
        if received.count < total:
            received.reconnects += 1
            await asyncio.sleep(PAUSE_S)


async def read_events(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, total: int, received: Received
) -> None:
    """One connection."""
    last = f"Last-Event-ID: {received.cursor}\r\n" if received.cursor else ""
    head = f"GET /topics/{TOPIC}/subscribe?offset=earliest HTTP/1.1\r\nHost: localhost\r\n{last}"
    writer.write(f"{head}Accept: text/event-stream\r\n\r\n".encode())
    if b" 200 " not in await reader.readline():
        return
    await reader.readuntil(b"\r\n\r\n")
    cursor, buffer = "", b""
    while received.count < total:
        size = int((await reader.readline()).strip() or b"0", 16)
        if size == 0:
            return
        buffer += (await reader.readexactly(size + 2))[:-2]
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            if line.startswith(b"id: "):
                cursor = line[4:].decode()
            elif line.startswith(b"data: "):
                received.add(json.loads(line[6:]), cursor)


async def follow_socket(port: int, total: int, received: Received) -> None:
    """Read a WebSocket until all messages are received; grant credit, reconnect when the line is cut."""
    while received.count < total:
        where = f"cursor={received.cursor}" if received.cursor else "offset=earliest"
        url = f"ws://127.0.0.1:{port}/topics/{TOPIC}/subscribe?{where}&credit=50"
        with contextlib.suppress(OSError, WebSocketException):
            async with connect(url, compression=None, open_timeout=60) as line:
                while received.count < total:
                    message = json.loads(await line.recv())
                    received.add(message, message["cursor"])
                    if received.count % 25 == 0:
                        await line.send('{"type": "credit", "messages": 25}')
        if received.count < total:
            received.reconnects += 1
            await asyncio.sleep(PAUSE_S)


async def publish(port: int, first: int, count: int, rate: int) -> None:
    """Publish numbers, in batches of one request; the number decides the partition."""
    batch = max(PARTITIONS, rate // 10)
    for start in range(first, first + count, batch):
        numbers = range(start, min(start + batch, first + count))
        records = [{"value": str(number), "partition": number % PARTITIONS} for number in numbers]
        body = json.dumps(records).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = (
            f"POST /topics/{TOPIC}/publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        )
        writer.write(f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.read()
        writer.close()
        if b" 200 OK" not in answer.partition(b"\r\n")[0]:
            raise RuntimeError(f"the batch was refused: {answer[:300]!r}")
        await asyncio.sleep(batch / rate)


async def run(options: argparse.Namespace, gateway: MeteredGateway) -> bool:
    """The whole run; has every client received everything?"""
    total = options.messages
    clients = [Received() for _ in range(options.sse + options.websockets)]
    began_s = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for index, received in enumerate(clients):
            follow = follow_events if index < options.sse else follow_socket
            tasks.create_task(follow(gateway.port, total, received))
            if index % 50 == 49:
                await asyncio.sleep(0.05)
        await publish(gateway.port, 0, total // 2, options.rate)
        await asyncio.to_thread(gateway.end, signal.SIGKILL)
        print(f"gateway killed after {time.monotonic() - began_s:.1f} s", flush=True)
        await asyncio.to_thread(gateway.start)
        await publish(gateway.port, total // 2, total - total // 2, options.rate)
    seconds = time.monotonic() - began_s
    wrong = [text for received in clients for text in received.wrong]
    deliveries = sum(received.count for received in clients)
    print(f"{options.sse} SSE and {options.websockets} WebSocket clients, {total} messages, {seconds:.1f} s")
    print(f"deliveries: {deliveries}, {deliveries / seconds:,.0f} per second")
    print(f"reconnects: {sum(received.reconnects for received in clients)}")
    print(f"lost, duplicated or out of order: {len(wrong)} {wrong[:3]}")
    return not wrong and deliveries == total * len(clients)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sse", type=int, default=1000)
    parser.add_argument("--websockets", type=int, default=200)
    parser.add_argument("--messages", type=int, default=400)
    parser.add_argument("--rate", type=int, default=40, help="messages published a second")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with Broker() as broker:
        with broker.client() as client:
            client.create_topic(TOPIC, partitions=PARTITIONS)
        with MeteredGateway(broker.bootstrap_servers) as gateway:
            is_complete = asyncio.run(run(options, gateway))
    print(f"gateway: {gateway.memory_bytes / 2**20:.0f} MiB at most, {gateway.cpu_s:.1f} s of CPU")
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
