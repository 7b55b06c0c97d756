"""Heads of requests: what is served, and what is refused with which status."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.observe.http import PARAMETERS_MAX, BadRequest, parse_head, response_head


def head(*lines: str) -> bytes:
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def test_a_request_of_prometheus() -> None:
    request = parse_head(
        head(
            "GET /metrics HTTP/1.1",
            "Host: broker:9644",
            "User-Agent: Prometheus/3.0",
            "Accept: text/plain;version=0.0.4",
            "Accept-Encoding: gzip",
            "X-Prometheus-Scrape-Timeout-Seconds: 10",
        )
    )
    assert (request.path, request.query, request.is_head, request.keeps_open) == ("/metrics", {}, False, True)


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/readyz?replicas", "/readyz", {"replicas": [""]}),
        ("/lag?group=a&group=b%20c&limit=5", "/lag", {"group": ["a", "b c"], "limit": ["5"]}),
        ("/%6detrics", "/metrics", {}),
        ("/x#y", "/x", {}),
    ],
)
def test_paths_and_parameters(target: str, path: str, query: dict[str, list[str]]) -> None:
    request = parse_head(head(f"GET {target} HTTP/1.1"))
    assert (request.path, request.query) == (path, query)


@pytest.mark.parametrize(
    ("version", "connection", "keeps_open"),
    [
        ("HTTP/1.1", None, True),
        ("HTTP/1.1", "close", False),
        ("HTTP/1.1", "Keep-Alive, Close", False),
        ("HTTP/1.0", None, False),
        ("HTTP/1.0", "keep-alive", True),
    ],
)
def test_whether_another_request_may_follow(version: str, connection: str | None, keeps_open: bool) -> None:
    headers = [] if connection is None else [f"Connection: {connection}"]
    assert parse_head(head(f"GET / {version}", *headers)).keeps_open is keeps_open


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["GET /"], 400),
        (["GET  / HTTP/1.1"], 400),
        ([""], 400),
        (["G\x00T / HTTP/1.1"], 400),
        (["GET / HTTP/2.0"], 505),
        (["GET / FTP/1.1"], 400),
        (["GET metrics HTTP/1.1"], 400),
        (["GET http://other/metrics HTTP/1.1"], 400),
        (["GET /\x01 HTTP/1.1"], 400),
        (["POST /metrics HTTP/1.1", "Content-Length: 0"], 405),
        (["DELETE / HTTP/1.1"], 405),
        ([f"GET /{'x' * 2100} HTTP/1.1"], 414),
        (["GET / HTTP/1.1", "no colon"], 400),
        (["GET / HTTP/1.1", " folded: x"], 400),
        (["GET / HTTP/1.1", "Host : x"], 400),
        (["GET / HTTP/1.1", "Content-Length: 5"], 400),
        (["GET / HTTP/1.1", "Content-Length: 0", "Content-Length: 5"], 400),
        (["GET / HTTP/1.1", "Transfer-Encoding: chunked"], 400),
        (["GET /?" + "&".join("a" for _ in range(PARAMETERS_MAX + 1)) + " HTTP/1.1"], 400),
    ],
)
def test_what_is_refused(lines: list[str], status: int) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_head(head(*lines))
    assert refused.value.status == status


@given(st.binary(max_size=200))
def test_no_bytes_break_the_parser(data: bytes) -> None:
    with contextlib.suppress(BadRequest):
        parse_head(data + b"\r\n\r\n")


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_no_header_breaks_the_parser(target: bytes, header: bytes) -> None:
    with contextlib.suppress(BadRequest):
        parse_head(b"GET /" + target + b" HTTP/1.1\r\nA: " + header + b"\r\n\r\n")


def test_the_head_of_a_response() -> None:
    lines = response_head(405, "text/plain", 12, keeps_open=False).decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 405 Method Not Allowed"
    assert {"Content-Length: 12", "Connection: close", "Allow: GET, HEAD"} <= set(lines)
    assert lines[-2:] == ["", ""]
