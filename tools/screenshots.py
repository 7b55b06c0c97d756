"""Screenshots of the console for the documentation: `python -m tools.screenshots`.

Needs a Chromium (RUNNEL_CHROMIUM, or `chromium` in the path) and Playwright.
"""

import asyncio
import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.groups import Groups
from runnel.client.producer import Producer
from runnel.model.ids import TopicPartition
from runnel.testing import Broker

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "console"
TOPICS = {"orders": 6, "payments": 3, "inventory.changes": 4, "page.views": 12, "customers": 3}
ORDERS = 3000
WARM_UP_MS = 60_000
SHOTS = {
    "overview": ("", "light", WARM_UP_MS),
    "messages": ("topics/orders/messages?filter=%24.country%3DDE+%24.total%3E400", "dark", 1500),
    "history": ("topics/orders/messages", "light", 1500),
}


def main() -> int:
    """Write the screenshots."""
    chromium = os.environ.get("RUNNEL_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        print("no chromium: install it, or set RUNNEL_CHROMIUM", file=sys.stderr)
        return 1
    FOLDER.mkdir(exist_ok=True)
    stop = threading.Event()
    with Broker(nodes=3, gateway=True, admin=True) as broker:
        asyncio.run(seed(broker.bootstrap_servers))
        writer = threading.Thread(target=lambda: asyncio.run(write(broker.bootstrap_servers, stop)))
        writer.start()
        try:
            take(broker.gateway_url, chromium)
        finally:
            stop.set()
            writer.join()
    return 0


def take(url: str, chromium: str) -> None:
    """Open each page and take its picture."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name, (path, theme, wait_ms) in SHOTS.items():
            context = browser.new_context(
                viewport={"width": 1280, "height": 800},
                color_scheme="dark" if theme == "dark" else "light",
            )
            page = context.new_page()
            page.goto(f"{url}console/{path}")
            page.wait_for_timeout(wait_ms)
            page.screenshot(path=FOLDER / f"{name}.png")
            context.close()
        browser.close()


async def seed(bootstrap: str) -> None:
    """A shop: orders of an hour, and groups that read them."""
    async with Cluster(bootstrap) as cluster:
        for name, partitions in TOPICS.items():
            await Admin(cluster).create_topic(name, partitions=partitions, replication_factor=3)
        now_ms = time.time_ns() // 1_000_000
        async with Producer(cluster) as producer:
            sent = [
                await producer.send(
                    "orders",
                    json.dumps(order(number)).encode(),
                    key=f"customer-{number % 97}".encode(),
                    headers=[("channel", b"web"), ("trace", f"{number:08x}".encode())],
                    timestamp_ms=now_ms - (ORDERS - number) * 1000,
                )
                for number in range(ORDERS)
            ]
            await asyncio.gather(*sent)
        for group, committed in (("billing", 180), ("shipping", 460), ("analytics", 40)):
            positions = {TopicPartition("orders", number): committed for number in range(6)}
            await Groups(cluster).commit(group, positions)


def order(number: int) -> dict[str, object]:
    """One order."""
    return {
        "id": number,
        "country": ("DE", "FR", "ES")[number % 3],
        "total": round(number * 1.37 % 500, 2),
        "items": [{"sku": f"A{number % 13}", "count": number % 4 + 1}],
    }


async def write(bootstrap: str, stop: threading.Event) -> None:
    """Page views at a rate that changes."""
    async with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
        number = 0
        while not stop.is_set():
            for _ in range(30 + number % 40):
                await producer.send("page.views", b'{"page": "/home"}', key=f"visitor-{number % 50}".encode())
            number += 1
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
