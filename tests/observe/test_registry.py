"""The registry: a collector that fails costs its own metrics, and is reported."""

from collections.abc import Iterator

from runnel.observe.exposition import parse, render
from runnel.observe.metrics import Family, Sample, one
from runnel.observe.registry import Registry


def test_the_other_collectors_are_read_when_one_fails() -> None:
    def samples() -> Iterator[Sample]:
        yield (), 1
        raise ValueError("second sample")

    def fails_in_samples() -> Iterator[Family]:
        yield Family("partly", "gauge", "", samples())
        yield one("after", "gauge", "", 2)

    def fails_at_once() -> list[Family]:
        raise KeyError("at once")

    bugs: list[Exception] = []
    registry = Registry(bugs.append)
    registry.add(fails_in_samples)
    registry.add(fails_at_once)
    registry.add(lambda: [one("last", "gauge", "", 3), None])
    read = {name: value for name, _, value in parse(b"".join(render(registry.families())).decode())}
    assert read == {"partly": 1, "after": 2, "last": 3, "runnel_collector_failures_total": 2}
    assert [type(bug) for bug in bugs] == [ValueError, KeyError]


def test_a_collector_may_be_added_while_others_are_read() -> None:
    registry = Registry(lambda bug: None)

    def adds() -> Iterator[Family]:
        registry.add(lambda: [one("late", "gauge", "", 1)])
        yield one("early", "gauge", "", 1)

    registry.add(adds)
    assert next(family.name for family in registry.families() if family is not None) == "early"
    assert "late" in [family.name for family in registry.families() if family is not None]
