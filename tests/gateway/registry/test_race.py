"""Several gateways register at the same time: one id per schema, one version per registration."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from runnel.gateway.options import GatewayOptions
from runnel.testing import Broker
from tests.gateway.gateways import Visitor, serving
from tests.gateway.registry.calls import call, register


def schema(number: int) -> str:
    return json.dumps({"type": "record", "name": f"R{number}", "fields": [{"name": "a", "type": "int"}]})


def race(count: int) -> None:
    """Both gateways register the same schemas, each in an order of its own."""
    with Broker() as broker:
        options = GatewayOptions(broker.bootstrap_servers)
        with serving(options) as one, serving(options) as other:
            barrier = threading.Barrier(2)

            def register_all(visitor: Visitor, numbers: list[int]) -> dict[int, tuple[int, int]]:
                barrier.wait()
                found = {}
                for number in numbers:
                    answer = register(visitor, f"s{number % 10}", schema(number), schemaType="AVRO")
                    found[number] = answer["id"], answer["version"]
                return found

            for subject in range(10):
                call(one, "PUT", f"/config/s{subject}", {"compatibility": "NONE"})
            upwards = list(range(count))
            with ThreadPoolExecutor(2) as threads:
                orders = (upwards, upwards[::-1])
                results = list(threads.map(register_all, (one, other), orders))

            assert results[0] == results[1]
            ids = [schema_id for schema_id, _ in results[0].values()]
            assert sorted(ids) == list(range(1, count + 1))
            for subject in range(10):
                versions = sorted(results[0][number][1] for number in upwards if number % 10 == subject)
                assert versions == list(range(1, len(versions) + 1))
                for visitor in (one, other):
                    assert call(visitor, "GET", f"/subjects/s{subject}/versions")[1] == versions


def test_two_gateways_race_100_registrations():
    race(100)


@pytest.mark.long
def test_two_gateways_race_1000_registrations():
    race(1000)


def test_eight_registrations_of_one_gateway_at_once(registry):
    with ThreadPoolExecutor(8) as threads:
        found = list(
            threads.map(lambda number: register(registry, f"at-once-{number}", schema(number)), range(8))
        )

    ids = [one["id"] for one in found]
    assert len(set(ids)) == 8
