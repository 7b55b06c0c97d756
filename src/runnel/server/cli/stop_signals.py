"""SIGTERM and Ctrl-C of commands that serve in the foreground."""

import asyncio
import os
import signal

EXIT_STATUS = 130
"""That of a process that SIGINT ended."""


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
