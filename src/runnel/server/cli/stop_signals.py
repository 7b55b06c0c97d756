"""Signals of commands that serve in the foreground: SIGTERM, Ctrl-C and SIGHUP."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

EXIT_STATUS = 130
"""The exit status of a process that was ended by SIGINT."""


def stop_signal() -> asyncio.Event:
    """An event that SIGTERM and Ctrl-C set; a second Ctrl-C exits without a clean shutdown."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop_or_exit() -> None:
        if stop.is_set():
            os._exit(EXIT_STATUS)
        stop.set()

    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, stop_or_exit)
    return stop


def reload_signal(reload: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Call `reload` on SIGHUP."""
    loop = asyncio.get_running_loop()
    reloading: set[asyncio.Task[None]] = set()

    def begin() -> None:
        task = loop.create_task(reload())
        reloading.add(task)
        task.add_done_callback(reloading.discard)

    loop.add_signal_handler(signal.SIGHUP, begin)
