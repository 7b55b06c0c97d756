"""A registry whose records are kept in a list, as the topic keeps them."""

import json
from collections.abc import Callable
from typing import Any

from runnel.registry.checks import ImmediateVerdicts
from runnel.registry.decision import Decision
from runnel.registry.records import Record
from runnel.registry.registration import check, look_up, register
from runnel.registry.state import RegistryState

VERDICTS = ImmediateVerdicts()


class World:
    """Decides requests, and replays what they lead to."""

    def __init__(self) -> None:
        self.state = RegistryState()
        self.log: list[Record] = []

    def write(self, decision: Decision[Any]) -> Any:
        """Write the records of a decision."""
        for record in decision.records:
            self.log.append(record)
            self.state.replay(record.key, record.value)
        return decision.response

    def do(self, request: Callable[..., Decision[Any]], *arguments: Any, **options: Any) -> Any:
        """Carry out a request that changes something."""
        return self.write(request(self.state, *arguments, **options))

    def register(self, subject: str, schema: Any, **options: Any) -> dict[str, Any]:
        """Register a schema, given as a value of JSON or as a whole request."""
        found: dict[str, Any] = self.do(register, subject, body(schema), verdicts=VERDICTS, **options)
        return found

    def look_up(self, subject: str, schema: Any, **options: Any) -> dict[str, Any]:
        return look_up(self.state, subject, body(schema), **options)

    def check(self, subject: str, schema: Any, **options: Any) -> dict[str, Any]:
        return check(self.state, subject, body(schema), verdicts=VERDICTS, **options)

    def restarted(self) -> "World":
        """A registry that has read the compacted log, and nothing else."""
        world = World()
        newest = {record.key: record for record in self.log}
        kept = [record for record in self.log if newest[record.key] is record]
        world.log = [record for record in kept if record.value is not None]
        for record in world.log:
            world.state.replay(record.key, record.value)
        return world


def body(schema: Any) -> dict[str, Any]:
    if isinstance(schema, dict) and "schema" in schema:
        return schema
    return {"schema": json.dumps(schema)}


def nested(levels: int) -> dict[str, Any]:
    """An object of objects."""
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"x": found or 1}
    return found


def record_of(*fields: str, name: str = "R", default: bool = False) -> dict[str, Any]:
    """An Avro record with fields of type int."""
    more = {"default": 0} if default else {}
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": "int", **more} for field in fields],
    }
