"""Reads the admin listener as a scraper does, with the standard library's client."""

import http.client
from collections.abc import Mapping

from runnel.observe.exposition import parse

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def get(address: str | None, path: str, method: str = "GET") -> tuple[int, Mapping[str, str], bytes]:
    """(status, headers, body) of a page."""
    assert address is not None, "the admin listener is off"
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def scrape(address: str | None) -> Samples:
    """All samples of a node."""
    status, _, body = get(address, "/metrics")
    assert status == 200, body
    return {(name, frozenset(labels)): value for name, labels, value in parse(body.decode())}


def value(samples: Samples, name: str, **labels: str) -> float:
    """One sample."""
    return samples[name, frozenset(labels.items())]


def total(samples: Samples, name: str, **labels: str) -> float:
    """The sum over all samples of a metric that have these labels."""
    return sum(
        each for (found, own), each in samples.items() if found == name and own >= frozenset(labels.items())
    )
