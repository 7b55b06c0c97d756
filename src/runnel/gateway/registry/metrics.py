"""`runnel_registry_*`: requests to the registry by operation, their errors, and how much is registered.

Operations are rows of the table of handlers, and all else is one, so that clients cannot add series.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from runnel.observe.metrics import Family, Labels, LatencyCounts, one

OTHER = "other"
NO_RESPONSE = "none"
"""The status of requests whose client disconnected before the response."""


class Route(NamedTuple):
    """The method of an operation, and its path as a template."""

    method: str
    path: str

    @property
    def labels(self) -> Labels:
        return ("method", self.method), ("route", self.path)


UNKNOWN = Route(OTHER, OTHER)
"""Requests that are refused before their operation is known, and those that have none."""


class RegistryMetrics:
    """What the registry of a gateway has served, and what it has read."""

    def __init__(self) -> None:
        self._durations: dict[Route, LatencyCounts] = {}
        self._statuses: Counter[tuple[Route, str]] = Counter()
        self._errors: Counter[int] = Counter()
        self.subjects: int | None = None
        """Subjects of the newest replay; None before the first."""
        self.schemas: int | None = None

    def served(self, route: Route, status: int | None, code: int | None, seconds: float) -> None:
        """A request was answered: its status (None if the client disconnected), and the code of an error."""
        self._durations.setdefault(route, LatencyCounts()).add(seconds)
        self._statuses[route, NO_RESPONSE if status is None else f"{status // 100}xx"] += 1
        if code is not None:
            self._errors[code] += 1

    def collect(self) -> Iterator[Family]:
        """All families."""
        yield Family(
            "runnel_registry_requests_total",
            "counter",
            "Requests by the class of their status.",
            [
                ((*route.labels, ("status", status)), count)
                for (route, status), count in sorted(self._statuses.items())
            ],
        )
        yield Family(
            "runnel_registry_errors_total",
            "counter",
            "Requests that were answered with an error, by its code.",
            [((("code", str(code)),), count) for code, count in sorted(self._errors.items())],
        )
        yield Family(
            "runnel_registry_request_seconds",
            "histogram",
            "From the head of a request to the end of its response.",
            [(route.labels, counts.distribution()) for route, counts in sorted(self._durations.items())],
        )
        if self.subjects is not None and self.schemas is not None:
            yield one(
                "runnel_registry_subjects",
                "gauge",
                "Subjects, softly deleted ones included, when the topic was last read.",
                self.subjects,
            )
            yield one(
                "runnel_registry_schemas",
                "gauge",
                "Schemas with an id, softly deleted ones included, when the topic was last read.",
                self.schemas,
            )
