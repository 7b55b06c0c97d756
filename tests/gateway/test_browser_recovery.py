"""A page that stays open while brokers and consoles are killed: it recovers by itself."""

import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from runnel.client.sync import SyncClient
from runnel.testing import Broker
from tests.gateway.browsers import MARKS, tab_of
from tests.gateway.test_process import children, serve
from tools.broker_process import free_port

pytestmark = [*MARKS, pytest.mark.long]

RECOVERY_MS = 60_000
EXPECTED = ("ERR_", "Failed to fetch", "Failed to load resource", "NetworkError", "fetch")
"""What a browser itself reports of requests that fail while there is no server."""


def opened(page: Any, url: str) -> None:
    """The list of topics; a mark tells that it was never loaded again."""
    page.goto(f"{url}console/topics")
    page.locator("#content").get_by_role("link", name="before").wait_for()
    page.evaluate("window.isTheSame = true")


def shows(page: Any, name: str) -> None:
    page.locator("#content").get_by_role("link", name=name).wait_for(timeout=RECOVERY_MS)
    assert page.evaluate("window.isTheSame"), "the page was loaded again"
    page.locator("#line-down").wait_for(state="hidden")
    assert unexpected(page) == []


def unexpected(page: Any) -> list[str]:
    return [fault for fault in page.faults if not any(each in fault for each in EXPECTED)]


def create(bootstrap: str, name: str) -> None:
    with SyncClient(bootstrap) as client:
        client.create_topic(name)


def test_a_console_that_is_killed(tmp_path: Path, browser: Any) -> None:
    port = free_port()
    with ExitStack() as stack:
        process, url = stack.enter_context(serve(tmp_path, listen=f"127.0.0.1:{port}"))
        create(f"127.0.0.1:{port}", "before")
        page = stack.enter_context(tab_of(browser, url))
        opened(page, url)
        [console] = children(process.pid)
        os.kill(console, signal.SIGKILL)
        create(f"127.0.0.1:{port}", "after")
        shows(page, "after")
        assert children(process.pid) != [console]


def test_a_broker_that_is_killed_with_its_console(tmp_path: Path, browser: Any) -> None:
    """The console ends with its broker: the page waits for both."""
    port, http = free_port(), free_port()
    where = {"listen": f"127.0.0.1:{port}", "http": f"127.0.0.1:{http}"}
    with ExitStack() as stack:
        process, url = stack.enter_context(serve(tmp_path, **where))
        create(f"127.0.0.1:{port}", "before")
        page = stack.enter_context(tab_of(browser, url))
        opened(page, url)
        process.kill()
        process.wait()
        page.get_by_text("Connection lost").wait_for(timeout=RECOVERY_MS)
        stack.enter_context(serve(tmp_path, **where))
        create(f"127.0.0.1:{port}", "after")
        shows(page, "after")


@pytest.mark.long
def test_a_node_of_three_that_is_killed(browser: Any) -> None:
    """What it means is shown, and that it is over."""
    settings = {"broker.session.timeout.ms": 2000, "broker.heartbeat.interval.ms": 200}
    with Broker(settings, nodes=3, gateway=True) as nodes, tab_of(browser, nodes.gateway_url) as page:
        create(nodes.bootstrap_servers, "before")
        page.goto(f"{nodes.gateway_url}console/")
        page.get_by_text("All 3 brokers are up").wait_for(timeout=RECOVERY_MS)
        page.evaluate("window.isTheSame = true")
        for node in (nodes.nodes[0], nodes.nodes[2]):
            node.kill()
            page.get_by_text("1 broker down").wait_for(timeout=RECOVERY_MS)
            node.start()
            page.get_by_text("All 3 brokers are up").wait_for(timeout=RECOVERY_MS)
        assert page.evaluate("window.isTheSame")
        assert unexpected(page) == []
