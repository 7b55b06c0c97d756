"""`runnel group describe` and `list` with lag in records and in time, with and without an admin listener."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from runnel.client.loop_thread import LoopThread
from runnel.server.cli.lag import duration_text, forecast_text
from tests.broker.world import BrokerWorld
from tests.server.cli import CommandLine

YEAR_MS = 31_536_000_000


class Observed:
    """A broker in a thread, and an HTTP server with its routes about lag."""

    def __init__(self, thread: LoopThread, world: BrokerWorld) -> None:
        self._thread = thread
        self.world = world
        self.requests: list[str] = []
        observed = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                observed.requests.append(self.path)
                url = urlsplit(self.path)
                status, kind, body = observed.answer(url.path, parse_qs(url.query))
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Not on the terminal."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, str, bytes]:
        async def answered() -> tuple[int, str, bytes]:
            assert path == "/lag"
            status, kind, body = self.world.broker.groups.lags.answer(query)
            return status, kind, b"".join(body)

        return self._thread.call(answered())

    def sample(self) -> None:
        self._thread.call(self.world.broker.groups.lags.sample())


@pytest.fixture
def observed(tmp_path: Path) -> Iterator[Observed]:
    thread = LoopThread("broker", asyncio.new_event_loop)

    async def start() -> BrokerWorld:
        settings = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
        return await BrokerWorld(tmp_path / "data", settings).__aenter__()

    world = thread.call(start())
    found = Observed(thread, world)
    serving = threading.Thread(target=found.server.serve_forever)
    serving.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        found.server.server_close()
        serving.join()
        thread.call(world.__aexit__())
        thread.close()


@pytest.fixture
def run(observed, capfd, tmp_path, monkeypatch) -> CommandLine:
    return CommandLine(f"127.0.0.1:{observed.world.broker.port}", capfd, tmp_path, monkeypatch)


def use_admin(monkeypatch, address: tuple[str, int] | None) -> None:
    """The broker has an admin listener at this address, as its settings would tell."""

    async def found(cluster: object, node_id: int) -> tuple[str, int] | None:
        return address

    monkeypatch.setattr("runnel.server.cli.lag.find_if_known", found)


def produce(run: CommandLine, topic: str, count: int, timestamp_ms: int) -> None:
    rows = [{"value": "v", "timestamp_ms": timestamp_ms} for _ in range(count)]
    run.ok("produce", topic, "--json", stdin="\n".join(map(json.dumps, rows)))


def test_the_coordinator_knows_when_records_were_appended(observed, run, monkeypatch):
    use_admin(monkeypatch, observed.server.server_address)
    run.ok("topic", "create", "t", "--partitions", "1")
    produce(run, "t", 1, 1)
    run.ok("consume", "t", "--group", "g")
    observed.sample()
    now_ms = observed.world.broker.clock.now_ms()
    produce(run, "t", 5, now_ms - YEAR_MS)
    observed.sample()
    view = run.ok("group", "describe", "g", "--json").json
    assert (view["lag"], view["lag_by"]) == (5, "append time")
    # Not a year, although the records say so.
    assert 0 <= view["lag_seconds"] < 3600
    assert view["partitions"][0]["lag_seconds"] == view["lag_seconds"]
    assert (view["verdict"], view["forecast"]) in {("ok", "unknown"), ("ok", "never"), ("stopped", "never")}
    text = run.ok("group", "describe", "g").out
    assert "(by append time)" in text and "VERDICT" not in text
    [row] = run.ok("group", "list", "--json").json
    assert (row["group"], row["lag"], row["verdict"]) == ("g", 5, view["verdict"])
    assert any("partitions=0" in path for path in observed.requests)


def test_without_an_admin_listener_it_is_by_record_time(observed, run, monkeypatch):
    run.ok("topic", "create", "t", "--partitions", "2")
    produce(run, "t", 1, 1)
    run.ok("consume", "t", "--group", "g")
    now_ms = observed.world.broker.clock.now_ms()
    for address in (None, ("127.0.0.1", 1)):
        use_admin(monkeypatch, address)
        produce(run, "t", 5, now_ms - YEAR_MS)
        view = run.ok("group", "describe", "g", "--json").json
        assert view["lag_by"] == "record time"
        assert YEAR_MS / 1000 <= view["lag_seconds"] < YEAR_MS / 1000 + 3600
        assert (view["verdict"], view["forecast_seconds"]) == (None, None)
    assert not observed.requests
    assert "365 d (by record time)" in run.ok("group", "describe", "g").out
    [row] = run.ok("group", "list", "--json").json
    assert (row["lag"], row["verdict"]) == (10, None)
    run.ok("consume", "t", "--group", "g")
    view = run.ok("group", "describe", "g", "--json").json
    assert (view["lag"], view["lag_seconds"]) == (0, 0)


def test_the_listener_of_another_cluster_is_not_believed(observed, run, monkeypatch):
    use_admin(monkeypatch, observed.server.server_address)
    run.ok("topic", "create", "t", "--partitions", "1")
    produce(run, "t", 1, 1)
    run.ok("consume", "t", "--group", "g")
    observed.sample()
    produce(run, "t", 1, observed.world.broker.clock.now_ms() - YEAR_MS)
    observed.sample()
    assert run.ok("group", "describe", "g", "--json").json["lag_by"] == "append time"
    monkeypatch.setattr(observed.world.broker, "cluster_id", "another")
    monkeypatch.setattr("runnel.server.cli.lag.ClusterAdmin.describe", _described)
    assert run.ok("group", "describe", "g", "--json").json["lag_by"] == "record time"


async def _described(admin: object) -> tuple[str, list[object]]:
    return "this", []


@pytest.mark.parametrize(
    "seconds, text",
    [
        (None, None),
        (0.0, "0 s"),
        (0.25, "250 ms"),
        (4.21, "4.2 s"),
        (59.99, "60.0 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_durations(seconds, text):
    assert duration_text(seconds) == text


def test_forecasts():
    assert forecast_text({"forecast": "catching up", "forecast_seconds": 240.0}) == "in 4 min"
    assert forecast_text({"forecast": "never", "forecast_seconds": None}) == "never at this pace"
    assert forecast_text({"forecast": "caught up", "forecast_seconds": 0}) == "yes"
    assert forecast_text({"forecast": None, "forecast_seconds": None}) is None
