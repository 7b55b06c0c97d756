"""All that can be done in the console, on three nodes with load: in every size and theme, and accessible."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from runnel.testing import Broker, LocalGateway
from tests.gateway.browsers import MARKS, seen_as, violations
from tests.gateway.test_browser import load, seed

pytestmark = [*MARKS, pytest.mark.long]

SIGHTS = [(size, theme) for size in ("desk", "phone") for theme in ("light", "dark")]
# The disk of any machine is used to some extent.
ALERTS = """
alerts.interval=1s
alerts.DiskSpaceLow.used=0
alerts.DiskSpaceLow.for=0s
alerts.group.wait=0s
"""


@dataclass
class Console:
    broker: Broker
    gateway_url: str


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A cluster with load, and a console that evaluates alerts."""
    settings = tmp_path_factory.mktemp("alerts") / "alerts.properties"
    settings.write_text(ALERTS)
    with Broker(nodes=3, admin=True) as broker:
        asyncio.run(seed(broker.bootstrap_servers))
        gateway = LocalGateway(broker.bootstrap_servers, "PLAINTEXT", str(settings))
        try:
            with load(broker.bootstrap_servers):
                yield Console(broker, gateway.url)
        finally:
            gateway.close()


class Person:
    """Uses the console in one size and theme, and looks at each dialog."""

    def __init__(self, page: Any, url: str, size: str, theme: str) -> None:
        self.page, self._url, self._sight = page, url, (size, theme)
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")

    def open(self, path: str) -> None:
        self.page.goto(f"{self._url}console/{path}")
        seen_as(self.page, *self._sight)

    def dialog(self, name: str, button: str, fields: dict[str, str], done: str, of: str = "") -> None:
        """Press a button, fill the dialog in, confirm it with another, and see what is said then."""
        within = self.page.locator(of or "main")
        within.get_by_role("button", name=name, exact=True).first.click()
        dialog = self.page.locator("dialog[open]")
        for field, value in fields.items():
            dialog.locator(f"[name={field}]").fill(value)
        assert violations(self.page) == [], name
        wide = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{name} is {wide} px too wide"
        dialog.get_by_role("button", name=button, exact=True).click()
        dialog.wait_for(state="detached")
        self.page.get_by_text(done).first.wait_for()


@pytest.mark.parametrize(("size", "theme"), SIGHTS)
def test_every_action(console: Console, page: Any, size: str, theme: str) -> None:
    person = Person(page, console.gateway_url, size, theme)
    name = f"tea-{size}-{theme}"
    create(person, name)
    produce_and_filter(person, name)
    change(person, name)
    reassign(person, name)
    reset(person)
    silence(person)
    redrive(person)
    person.open(f"topics/{name}")
    person.dialog("Delete records", "Delete records", {"confirm": name}, f"deleted all records of {name}")
    person.dialog("Delete topic", "Delete topic", {"confirm": name}, f"deleted topic {name}")


def create(person: Person, name: str) -> None:
    person.open("topics")
    person.dialog("Create topic", "Create", {"name": name}, f"created topic {name}")


def produce_and_filter(person: Person, name: str) -> None:
    page = person.page
    person.open(f"topics/{name}/messages")
    for cups in ("1", "2"):
        value = f'{{"cups": {cups}}}'
        person.dialog("Produce", "Produce", {"key": "anna", "value": value}, f"produced to {name}-")
    page.locator("input[name=filter]").fill("$.cups=2")
    page.get_by_role("button", name="Show").click()
    page.get_by_text("Done: 1 found").wait_for()
    seen_as(page, *person._sight)
    page.locator("#content tr[data-open] button").first.click()
    page.locator("dialog").get_by_text('"cups": 2').first.wait_for()
    assert violations(page) == []
    page.keyboard.press("Escape")
    # The histogram leads to the first record of a bar.
    person.open(f"topics/{name}/messages")
    page.locator("#histogram svg:visible a").first.click()
    page.wait_for_url("**at=time*")
    page.locator("#content tr[data-open]").first.wait_for()
    person.open(f"topics/{name}/messages?asof=1h")
    page.get_by_text("Back to now").click()
    page.locator("#content tr[data-open]").first.wait_for()


def change(person: Person, name: str) -> None:
    person.open(f"topics/{name}/settings")
    label = "Change retention.ms"
    person.dialog(label, "Save", {"value": "3600000"}, f"set retention.ms of topic {name}")
    person.dialog(label, "Reset to default", {}, f"reset retention.ms of topic {name}")
    person.open(f"topics/{name}")
    person.dialog("Add partitions", "Add partitions", {"total": "4"}, f"{name} has 4 partitions")


def reassign(person: Person, name: str) -> None:
    person.open(f"topics/{name}")
    page = person.page
    before = page.locator("#content tbody tr").first.locator("td").nth(2).inner_text()
    first, second, third = before.replace("Replicas", "").replace(" ", "").strip().split(",")
    moved = f"{third}, {first}"
    button = "Move replicas of partition 0"
    person.dialog(button, "Move", {"replicas": moved}, f"reassigning {name}-0 to {third}, {first}")
    page.locator("#content tbody tr").first.locator("td").nth(2).get_by_text(moved, exact=True).wait_for()
    assert second
    person.open("brokers")
    page.get_by_role("button", name="Elect preferred leaders").click()
    page.locator("dialog[open]").get_by_role("heading", name="Elect preferred leaders").wait_for()
    assert violations(page) == []


def reset(person: Person) -> None:
    person.open("group?id=billing")
    page = person.page
    page.get_by_role("button", name="Reset offsets").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_role("button", name="Preview").click()
    dialog.get_by_role("button", name="Reset 3 offsets").wait_for()
    assert violations(page) == []
    dialog.get_by_role("button", name="Reset 3 offsets").click()
    page.get_by_text("reset 3 offsets of group billing").wait_for()


def silence(person: Person) -> None:
    person.open("alerts")
    page = person.page
    page.get_by_text("DiskSpaceLow").first.wait_for()
    why = {"why": "the disk is being replaced", "for": "1h"}
    person.dialog("Silence DiskSpaceLow", "Silence", why, "silenced DiskSpaceLow for 1h", of="#content")
    page.locator("#content").get_by_text("the disk is being replaced").first.wait_for()
    assert violations(page) == []
    page.locator("#content").get_by_role("button", name="End the silence").first.click()
    page.locator("dialog[open]").get_by_role("button", name="End it").click()
    page.get_by_text("ended the silence").wait_for()


def redrive(person: Person) -> None:
    """The letter is sent back once, by whichever size and theme is first."""
    person.open("dead-letters/orders.dead-letters")
    page = person.page
    page.locator("#content").get_by_text("not JSON").first.wait_for()
    back = page.get_by_role("button", name="Redrive letters to orders")
    if back.count():
        person.dialog("Redrive letters to orders", "Redrive", {}, "orders", of="#content")
