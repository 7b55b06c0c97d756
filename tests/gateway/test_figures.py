"""Figures from the admin listeners of brokers, and how they are written."""

import asyncio
import json

import pytest

from runnel.client.admin_listener import read
from runnel.client.http_get import GetFailed
from runnel.gateway.cluster_data import totals_of
from runnel.gateway.console import text
from runnel.gateway.lag import ReportedLag, lag_of, lag_summaries, read_summaries
from runnel.gateway.throughput import Totals, rates_between
from runnel.model.ids import TopicPartition

METRICS = b"""# HELP kafka_server_brokertopicmetrics_messagesin_total Records.
# TYPE kafka_server_brokertopicmetrics_messagesin_total counter
kafka_server_brokertopicmetrics_messagesin_total{topic="orders"} 7
kafka_server_brokertopicmetrics_messagesin_total 9
kafka_server_brokertopicmetrics_bytesin_total 100
kafka_server_brokertopicmetrics_bytesout_total 0
other_total{topic="orders"} 5
"""
GROUP = {
    "group": "billing",
    "state": "Stable",
    "lag": 12,
    "lag_seconds": 4.5,
    "verdict": "lagging",
    "forecast_seconds": 60.0,
    "partitions": [{"topic": "orders", "partition": 1, "lag": 12, "lag_seconds": 4.5, "reason": None}],
}


def test_counters_of_all_brokers_are_added() -> None:
    totals = totals_of([METRICS, METRICS])
    assert totals == Totals(18, 200.0, 0.0, {"orders": 14})
    assert totals_of([b'kafka_server_brokertopicmetrics_messagesin_total{topic="a"} 3\n']).records == 3


def test_a_counter_that_fell_has_no_rate() -> None:
    rates = rates_between(Totals(10, 5.0), Totals(30, 1.0), 2.0, 0.0)
    assert (rates.records, rates.bytes_in, rates.bytes_out) == (10.0, None, None)


def test_lag_in_seconds() -> None:
    [summary] = read_summaries(json.dumps({"groups": [GROUP]}).encode(), with_partitions=True).values()
    assert (summary.lag, summary.seconds, summary.verdict, summary.forecast_s) == (12, 4.5, "lagging", 60.0)
    assert summary.by_partition == {TopicPartition("orders", 1): ReportedLag(12, 4.5)}


def test_responses_of_any_kind() -> None:
    body = json.dumps({"groups": [GROUP]}).encode()
    plain = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (
        len(body),
        body,
    )
    until_end = b"HTTP/1.1 200 OK\r\n\r\n" + body
    missing, nothing = b"HTTP/1.1 404 Not Found\r\n\r\n", b""

    async def check() -> None:
        for response in (plain, chunked, until_end, missing, nothing):

            async def answer(reader, writer, response=response) -> None:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(response)
                writer.close()

            server = await asyncio.start_server(answer, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            addresses = [("127.0.0.1", port)]
            if response in (missing, nothing):
                with pytest.raises(GetFailed):
                    await read(("127.0.0.1", port), "/lag")
                assert await lag_summaries(addresses) == {}
                assert await lag_of(addresses, "billing") is None
            else:
                assert await read(("127.0.0.1", port), "/lag") == body
                assert (await lag_summaries(addresses))["billing"].lag == 12
            server.close()
            await server.wait_closed()
        with pytest.raises(GetFailed):
            await read(("127.0.0.1", 1), "/lag")

    asyncio.run(check())


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (text.number(1234567), "1\u202f234\u202f567"),
        (text.number(None), "–"),
        (text.size(0), "0 B"),
        (text.size(1536), "1.5 KiB"),
        (text.size(200 * 2**20), "200 MiB"),
        (text.duration(0.25), "250 ms"),
        (text.duration(59.4), "59 s"),
        (text.duration(61), "1 min 1 s"),
        (text.duration(3700), "1 h 1 min"),
        (text.duration(90000), "1 d 1 h"),
        (text.moment(-1), "–"),
        (text.moment(1_790_000_000_123), "2026-09-21 14:13:20.123"),
        (text.partitions_text([3, 1, 2, 7]), "1–3, 7"),
        (text.shown_bytes("ü".encode() * 10, 3), "üüü…"),
        (text.shown_bytes(b"\xff\x00"), "0xff00"),
        (text.hex_dump(b"A\x00"), "00000000  41 00                                             A·"),
    ],
)
def test_figures_are_written_for_people(written: str, expected: str) -> None:
    assert written == expected
