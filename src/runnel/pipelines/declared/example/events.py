"""Generates orders and payments for the example, deterministic for a seed."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

COUNTRIES = ("AT", "CH", "DE", "FR", "IT")
METHODS = ("card", "transfer", "voucher")
PAID_SHARE = 0.9
PAYMENT_DELAY_MAX_MS = 60_000
MALFORMED = ('{"order_id": "o-', '{"order_id": "o-0", "amount": "a lot"}', "not JSON at all")


@dataclass(frozen=True, slots=True)
class Event:
    """A record to send."""

    topic: str
    key: str
    value: str
    timestamp_ms: int


def events(
    count: int, *, start_ms: int, seed: int = 1, malformed: int = 0, span_ms: int = 300_000
) -> Iterator[Event]:
    """Orders spread over the time span, payments for most of them, and malformed orders.

    The last order and payment are well after the span, so that the watermark passes all others.
    """
    dice = random.Random(seed)
    made: list[Event] = []
    for number in range(count):
        at_ms = start_ms + span_ms * number // count
        made += _order(dice, f"o-{number}", at_ms)
    for number in range(malformed):
        at_ms = start_ms + dice.randrange(span_ms)
        made.append(Event("orders", "broken", MALFORMED[number % len(MALFORMED)], at_ms))
    yield from sorted(made, key=lambda event: event.timestamp_ms)
    end_ms = start_ms + span_ms + 1_200_000
    yield from _pair("o-last", "c-last", "AT", 1.0, "card", end_ms, end_ms)


def _order(dice: random.Random, order_id: str, at_ms: int) -> list[Event]:
    customer, country = f"c-{dice.randrange(100)}", dice.choice(COUNTRIES)
    amount, method = round(dice.uniform(5, 250), 2), dice.choice(METHODS)
    paid_ms = at_ms + dice.randrange(PAYMENT_DELAY_MAX_MS)
    both = _pair(order_id, customer, country, amount, method, at_ms, paid_ms)
    return both if dice.random() < PAID_SHARE else both[:1]


def _pair(
    order_id: str, customer: str, country: str, amount: float, method: str, at_ms: int, paid_ms: int
) -> list[Event]:
    order = {
        "order_id": order_id,
        "customer": customer,
        "country": country,
        "amount": amount,
        "at": _text(at_ms),
    }
    payment = {"order_id": order_id, "method": method, "paid": amount, "at": _text(paid_ms)}
    return [
        Event("orders", order_id, json.dumps(order), at_ms),
        Event("payments", order_id, json.dumps(payment), paid_ms),
    ]


def _text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
