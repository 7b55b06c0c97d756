"""Generated orders of a small shop over one day; deterministic."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

DAY_MS = 24 * 60 * 60 * 1000
SEED = 7

_PRODUCTS = (
    ("green tea", 4.20),
    ("espresso beans", 12.90),
    ("teapot", 34.00),
    ("mug", 9.50),
    ("oat biscuits", 3.80),
    ("honey", 7.40),
)
_COUNTRIES = ("DE", "FR", "PL", "ES", "IT", "NL", "PT", "CZ")
_CHANNELS = ("web", "app", "shop")
_HOURLY_WEIGHTS = (1, 1, 1, 1, 1, 2, 4, 7, 9, 8, 7, 8, 10, 9, 7, 6, 7, 9, 11, 12, 10, 7, 4, 2)
"""Relative number of orders in each hour of the day."""


@dataclass(slots=True)
class Order:
    """An order as a record."""

    key: bytes
    value: bytes
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int


def orders(count: int, end_ms: int) -> Iterator[Order]:
    """`count` orders over the day that ends at `end_ms`, sorted by time."""
    random = Random(SEED)
    hours = random.choices(range(24), weights=_HOURLY_WEIGHTS, k=count)
    timestamps = sorted(end_ms - DAY_MS + int((hour + random.random()) * DAY_MS / 24) for hour in hours)
    for number, timestamp_ms in enumerate(timestamps, start=1):
        customer = f"customer-{min(int(20 * random.paretovariate(1.1)), 5000):04d}"
        yield Order(
            key=customer.encode(),
            value=json.dumps(_order(random, number, customer), separators=(",", ":")).encode(),
            headers=[
                ("channel", random.choice(_CHANNELS).encode()),
                ("trace-id", b"%016x" % random.getrandbits(64)),
            ],
            timestamp_ms=timestamp_ms,
        )


def _order(random: Random, number: int, customer: str) -> dict[str, object]:
    basket = [
        (product, random.randint(1, 4), price)
        for product, price in random.sample(_PRODUCTS, random.randint(1, 3))
    ]
    return {
        "order": number,
        "customer": customer,
        "country": random.choice(_COUNTRIES),
        "items": [
            {"product": product, "quantity": quantity, "price": price} for product, quantity, price in basket
        ],
        "total": round(sum(quantity * price for _, quantity, price in basket), 2),
    }
