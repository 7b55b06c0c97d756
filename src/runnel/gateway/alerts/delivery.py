"""Deliveries to receivers, in threads: one at a time to each, so that a slow receiver delays no other."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from runnel.gateway.alerts.receivers import DeliveryFailed, Receiver
from runnel.observe.alerts.groups import Notification

log = logging.getLogger("runnel.alerts")

Outcome = Callable[[Notification, str | None], None]
"""Called on the event loop with the error of a delivery, or None."""


class Delivery:
    """Delivers notifications."""

    def __init__(self, receivers: Mapping[str, Receiver], outcome: Outcome) -> None:
        self._receivers = receivers
        self._outcome = outcome
        self._threads = ThreadPoolExecutor(max(len(receivers), 1), "runnel-alerts")
        self._turns = {name: asyncio.Lock() for name in receivers}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, notification: Notification) -> None:
        """Deliver a notification, and report its outcome later."""
        task = asyncio.create_task(self._deliver(notification))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, notification: Notification) -> None:
        receiver = self._receivers[notification.receiver]
        async with self._turns[receiver.name]:
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(self._threads, receiver.send, notification)
            except DeliveryFailed as error:
                log.warning("a notification to %s failed: %s", receiver.name, error)
                self._outcome(notification, str(error))
            except Exception as error:
                # A bug; the notification must not be in flight forever.
                log.exception("a notification to %s failed", receiver.name)
                self._outcome(notification, repr(error))
            else:
                self._outcome(notification, None)

    async def close(self, timeout_s: float) -> None:
        """Wait for deliveries for this long; the others are left to their threads, without an outcome."""
        tasks = set(self._tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)
