"""Times as users enter them: in UTC, as the console shows them."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime

from runnel.client.moments import InvalidMoment, parse_moment_ms
from runnel.gateway.console.pages import Refused
from runnel.gateway.console.text import YEAR_10000_MS

AS_OF = "asof"
"""The parameter of an address: what is shown is as it was at this time."""


def entered_ms(text: str) -> int:
    """A time, or how long ago it was. Raises Refused."""
    text = text.strip()
    try:
        try:
            given = datetime.fromisoformat(text)
        except ValueError:
            found_ms = parse_moment_ms(text, time.time_ns() // 1_000_000)
        else:
            found_ms = round((given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp() * 1000)
    except (InvalidMoment, OverflowError) as error:
        raise Refused(str(error)) from None
    if not 0 <= found_ms < YEAR_10000_MS:
        raise Refused(f"{text} is not within the years 1970 to 9999")
    return found_ms


def as_of_ms(query: Mapping[str, str]) -> int | None:
    """The time that an address asks for; None: now. Raises Refused."""
    text = query.get(AS_OF, "").strip()
    return entered_ms(text) if text else None
