"""Write message declarations from Kafka's protocol facts, as a start for a file that is then edited by hand.

    python tools/import_schema.py FACTS.json Fetch             print the declarations of an API
    python tools/import_schema.py FACTS.json OffsetCommitKey   or of a message that is not part of an API
    python tools/import_schema.py FACTS.json --all FOLDER      write each client API that has no file yet

FACTS.json maps message names to Kafka's JSON for them (names, types, versions, tags, defaults).
"""

import argparse
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WIRE_NAMES = {"bool": "boolean", "bytes": "bytes_", "records": "records_"}
ZEROS = {"string": '""', "bool": "False", "float64": "0.0"}
Bounds = tuple[int, int]
NUMBERS = ("int8", "int16", "uint16", "int32", "uint32", "int64", "float64")


def snake(name: str) -> str:
    """ThrottleTimeMs → throttle_time_ms."""
    name = name.replace("KRaft", "Kraft").replace("2Pc", "_2pc")
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name).lower()


@dataclass
class Declarations:
    """The classes of one file, structs before those that use them."""

    classes: dict[str, list[str]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def add_message(self, spec: dict[str, Any], base: str, prefix: str) -> None:
        """Declare a message and the structs under it; `prefix` goes before struct names already taken."""
        structs = {each["name"]: each["fields"] for each in spec.get("commonStructs", [])}
        _collect(spec["fields"], structs)
        renamed = {}
        for name, fields in structs.items():
            body = [_shape(each) for each in fields]
            if name in self.classes and self.shapes.get(name) != body:
                renamed[name] = prefix + name
            self.shapes.setdefault(renamed.get(name, name), body)
        reach = _reach(spec, structs)
        for name in _in_order(structs):
            self._declare(renamed.get(name, name), "Struct", structs[name], reach[name], renamed)
        key = f"api={spec['apiKey']}, " if "apiKey" in spec else ""
        flexible = "" if spec["flexibleVersions"] == "none" else f', flexible="{spec["flexibleVersions"]}"'
        head = f'{base}, {key}versions="{spec["validVersions"]}"{flexible}'
        self.used.add(base)
        self._declare(spec["name"], head, spec["fields"], _bounds(spec["validVersions"]), renamed)

    shapes: dict[str, list[Any]] = field(default_factory=dict)

    def _declare(
        self, name: str, bases: str, fields: list[dict[str, Any]], valid: Bounds, renamed: dict[str, str]
    ) -> None:
        if name in self.classes:
            return
        self.used.add("Struct" if bases == "Struct" else bases.split(",")[0])
        lines = [f"class {name}({bases}):"]
        lines += [self._field(each, valid, renamed) for each in fields]
        self.classes[name] = lines if fields else [*lines, "    pass"]

    def _field(self, spec: dict[str, Any], valid: Bounds, renamed: dict[str, str]) -> str:
        kind = spec["type"].removeprefix("[]")
        is_array, is_struct = spec["type"].startswith("[]"), kind[0].isupper()
        versions = spec.get("versions") or spec["taggedVersions"]
        hint = renamed.get(kind, kind) if is_struct else WIRE_NAMES.get(kind, kind)
        if not is_struct:
            self.used.add(hint)
        if is_array:
            hint = f"list[{hint}]"
        arguments = []
        if not _covers_all(versions, valid):
            arguments.append(f'"{versions}"')
        default = _default(spec, is_array or is_struct)
        if default is not None:
            arguments.append(f"default={default}")
        if "tag" in spec:
            arguments.append(f"tag={int(spec['tag'])}")
        nullable = spec.get("nullableVersions")
        if nullable and not _overlap(nullable, valid):
            nullable = None
        left_out = is_struct and not is_array and "tag" in spec
        if nullable or left_out:
            hint += " | None"
        if nullable and (left_out or _narrower(nullable, versions, valid)):
            arguments.append(f'nullable="{nullable}"')
        if (
            [each for each in arguments if not each.startswith("default=")]
            or is_array
            or is_struct
            or (default is None and (nullable or kind in ("uuid", "bytes", "records")))
        ):
            self.used.add("field")
            value = f"field({', '.join(arguments)})"
        else:
            value = default or ZEROS.get(kind, "0")
        return f"    {snake(spec['name'])}: {hint} = {value}"

    def text(self, docstring: str) -> str:
        """The whole file."""
        names = ", ".join(sorted(self.used, key=lambda each: (each[0].islower(), each)))
        parts = [
            f'"""{docstring}"""\n\nfrom __future__ import annotations\n\nfrom runnel.wire import {names}'
        ]
        return "\n\n\n".join([*parts, *("\n".join(lines) for lines in self.classes.values())]) + "\n"


def _collect(fields: list[dict[str, Any]], structs: dict[str, Any]) -> None:
    for each in fields:
        if "fields" in each:
            structs[each["type"].removeprefix("[]")] = each["fields"]
            _collect(each["fields"], structs)


def _shape(spec: dict[str, Any]) -> Any:
    """What makes two fields the same, whatever the order of keys."""
    return json.dumps(spec, sort_keys=True)


def _in_order(structs: dict[str, Any]) -> list[str]:
    """Struct names such that each comes after those it contains."""
    ordered: list[str] = []

    def visit(name: str) -> None:
        for each in structs[name]:
            inner = each["type"].removeprefix("[]")
            if inner in structs and inner not in ordered:
                visit(inner)
        if name not in ordered:
            ordered.append(name)

    for name in structs:
        visit(name)
    return ordered


def _reach(spec: dict[str, Any], structs: dict[str, Any]) -> dict[str, Bounds]:
    """In which versions of the message each struct can appear; a field need not repeat that."""
    reach: dict[str, Bounds] = {}

    def visit(fields: list[dict[str, Any]], valid: Bounds) -> None:
        for each in fields:
            name = each["type"].removeprefix("[]")
            if name in structs:
                first, last = _bounds(each.get("versions") or each["taggedVersions"])
                inner = max(first, valid[0]), min(last, valid[1])
                known = reach.get(name, inner)
                reach[name] = min(inner[0], known[0]), max(inner[1], known[1])
                visit(structs[name], inner)

    visit(spec["fields"], _bounds(spec["validVersions"]))
    return reach


def _bounds(versions: str) -> Bounds:
    if versions == "none":
        return 1, 0
    if versions.endswith("+"):
        return int(versions[:-1]), 32767
    first, _, last = versions.partition("-")
    return int(first), int(last or first)


def _covers_all(versions: str, valid: Bounds) -> bool:
    (first, last), (oldest, newest) = _bounds(versions), valid
    return first <= oldest and last >= newest


def _overlap(versions: str, valid: Bounds) -> bool:
    first, last = _bounds(versions)
    return max(first, valid[0]) <= min(last, valid[1])


def _narrower(nullable: str, versions: str, valid: Bounds) -> bool:
    """Whether some version of the field cannot be null."""
    (oldest, newest), (first, last), (low, high) = valid, _bounds(versions), _bounds(nullable)
    return not all(low <= each <= high for each in range(max(oldest, first), min(newest, last) + 1))


def _default(spec: dict[str, Any], composite: bool) -> str | None:
    """The default as Python source, or None if it is the type's own."""
    value = spec.get("default")
    if "default" not in spec or value == "":
        return None
    if value in (None, "null"):
        return None if spec["type"] == "records" else "None"
    if composite:
        raise ValueError(f"{spec['name']}: no default but null is known for {spec['type']}")
    if spec["type"] == "bool":
        return "True" if value in (True, "true") else None
    if spec["type"] in NUMBERS:
        number = int(str(value), 0)
        return {0: None, 0x7FFFFFFF: "0x7FFFFFFF", 0x7FFFFFFFFFFFFFFF: "0x7FFFFFFFFFFFFFFF"}.get(
            number, str(number)
        )
    return repr(value)


def declare(facts: dict[str, Any], names: list[str]) -> str:
    """One file that declares the named APIs, or messages that are neither request nor response."""
    file = Declarations()
    for name in names:
        if name + "Request" in facts:
            file.add_message(facts[name + "Request"], "Request", "Requested")
            file.add_message(facts[name + "Response"], "Response", "Answered")
        else:
            file.add_message(facts[name], "Data", name)
    return file.text(", ".join(names) + ".")


def main() -> None:
    """Print the requested declarations, or write all that are missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("facts", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--all", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    facts = json.loads(arguments.facts.read_text())
    if arguments.names:
        print(declare(facts, arguments.names), end="")
    for name, spec in facts.items() if arguments.all else ():
        api = name.removesuffix("Request")
        path = arguments.all / f"{snake(api)}.py" if arguments.all else None
        if path and spec["type"] == "request" and "broker" in spec.get("listeners", ()) and not path.exists():
            path.write_text(declare(facts, [api]))


if __name__ == "__main__":
    main()
