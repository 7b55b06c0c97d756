"""Parses and validates a pipeline file."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from runnel.client.properties import NO_PROPERTIES, ClientProperties
from runnel.pipelines.client_options import PROPERTIES_FILE, read_client_properties
from runnel.pipelines.declared import values
from runnel.pipelines.declared.declaration import Declaration, Reference, Sink, Trigger
from runnel.pipelines.declared.findings import Findings, Position, did_you_mean
from runnel.pipelines.declared.graph import check_graph
from runnel.pipelines.declared.python_file import check_function
from runnel.pipelines.declared.sections import checked_names, read_source, read_step
from runnel.pipelines.declared.sink_sections import located, read_sink, sink_input
from runnel.pipelines.declared.tree import Entry, Node, Scalar, described, parse
from runnel.pipelines.declared.tree import Mapping as MappingNode
from runnel.pipelines.declared.values import Key, Section
from runnel.pipelines.errors import BadOption

BROKER = "127.0.0.1:9092"
REGISTRY = "http://127.0.0.1:8080"
TRIGGER_MS = 10_000
CHECKPOINTS = ".runnel/checkpoints"

T = TypeVar("T")


def _section(node: Node, findings: Findings) -> Node | None:
    if isinstance(node, MappingNode) and node.entries:
        return node
    findings.error(node.position, f"expected a mapping of names, found {described(node)}")
    return None


def _trigger(node: Node, findings: Findings) -> Trigger | None:
    found = values.duration("the interval between batches", "once", "continuous")(node, findings)
    match found:
        case None:
            return None
        case "once":
            return Trigger(is_once=True, interval_ms=0)
        case "continuous":
            return Trigger(is_once=False, interval_ms=0)
        case _:
            return Trigger(is_once=False, interval_ms=found)


TOP_KEYS = {
    "name": Key(values.matching(r"[A-Za-z0-9][A-Za-z0-9._-]*", "a name of letters, digits, . _ -"), True),
    "broker": Key(
        values.matching(r"[^\s,]+:\d+(,[^\s,]+:\d+)*", "bootstrap servers, such as 127.0.0.1:9092")
    ),
    "broker-properties": Key(values.text("a file with client properties, such as security.protocol")),
    "registry": Key(values.text("the address of a schema registry, such as http://127.0.0.1:8080")),
    "registry-user": Key(values.text("the user of the registry, NAME:PASSWORD")),
    "trigger": Key(_trigger),
    "checkpoint": Key(values.text("a directory")),
    "settings": Key(values.settings("Spark settings, such as spark.sql.shuffle.partitions")),
    "sources": Key(_section, is_required=True),
    "steps": Key(_section),
    "sinks": Key(_section, is_required=True),
}


def read_file(path: Path, environment: Mapping[str, str]) -> tuple[Declaration | None, Findings]:
    """Read a file; OSError if it cannot be read."""
    findings = Findings()
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        findings.error(Position(1, 1), f"the file is not UTF-8: invalid byte at offset {error.start}")
        return None, findings
    return read_text(text, path.parent, environment, findings), findings


def read_text(
    text: str, folder: Path, environment: Mapping[str, str], findings: Findings
) -> Declaration | None:
    """The declaration as far as it could be parsed; it must not run if the findings have errors."""
    tree = parse(text, environment, findings)
    if tree is None:
        return None
    section = values.read_section(tree, TOP_KEYS, "a pipeline", findings)
    if section is None:
        return None
    declaration = _declaration(section, folder, environment, findings)
    check_graph(declaration, findings)
    for step in declaration.steps.values():
        if step.python is not None:
            check_function(step.python, len(step.inputs), findings)
    return declaration


def _declaration(
    section: Section, folder: Path, environment: Mapping[str, str], findings: Findings
) -> Declaration:
    taken: dict[str, Position] = {}
    broken: set[str] = set()
    sources = _named(section, "sources", "source", taken, broken, folder, findings, read_source)
    steps = _named(section, "steps", "step", taken, broken, folder, findings, read_step)
    name = section.get("name", "")
    return Declaration(
        name=name,
        broker=section.get("broker", environment.get("RUNNEL_BOOTSTRAP") or BROKER),
        checkpoint=located(section.get("checkpoint", f"{CHECKPOINTS}/{name}"), folder),
        trigger=section.get("trigger", Trigger(is_once=False, interval_ms=TRIGGER_MS)),
        settings=_settings(section, findings),
        folder=folder,
        sources=sources,
        steps=steps,
        sinks=_sinks(section, folder, findings),
        broken=frozenset(broken),
        sink_inputs=_sink_inputs(section),
        properties=_properties(section, folder, environment, findings),
        registry=section.get("registry", environment.get("RUNNEL_REGISTRY") or REGISTRY),
        registry_user=section.get("registry-user", environment.get("RUNNEL_REGISTRY_USER") or None),
    )


def _properties(
    section: Section, folder: Path, environment: Mapping[str, str], findings: Findings
) -> ClientProperties:
    """The client properties of the file that the pipeline or the environment names."""
    named = section.get("broker-properties")
    path = str(folder / named) if named else environment.get("RUNNEL_COMMAND_CONFIG")
    if not path:
        return NO_PROPERTIES
    try:
        return read_client_properties({PROPERTIES_FILE: path})
    except BadOption as error:
        findings.error(section.position_of("broker-properties" if named else "name"), str(error))
        return NO_PROPERTIES


def _named(
    section: Section,
    key: str,
    what: str,
    taken: dict[str, Position],
    broken: set[str],
    folder: Path,
    findings: Findings,
    read: Callable[[str, Position, Node, Path, Findings], T | None],
) -> dict[str, T]:
    found: dict[str, T] = {}
    entries = _entries(section, key)
    good = checked_names(entries, what, findings, taken)
    for name, entry in entries.items():
        value = read(name, entry.key.position, entry.value, folder, findings)
        if value is None or name not in good:
            broken.add(name)
        else:
            found[name] = value
    return found


def _entries(section: Section, key: str) -> dict[str, Entry]:
    node: Any = section.get(key)
    return {} if node is None else node.entries


def _sinks(section: Section, folder: Path, findings: Findings) -> dict[str, Sink]:
    read_name = values.matching(r"[A-Za-z0-9][A-Za-z0-9._-]*", "a sink's name of letters, digits, . _ -")
    found: dict[str, Sink] = {}
    for name, entry in _entries(section, "sinks").items():
        good_name = read_name(Scalar(name, entry.key.position), findings)
        sink = read_sink(name, entry.key.position, entry.value, folder, findings)
        if sink is not None and good_name:
            found[name] = sink
    return found


def _sink_inputs(section: Section) -> dict[str, Reference]:
    found = {name: sink_input(entry.value) for name, entry in _entries(section, "sinks").items()}
    return {name: reference for name, reference in found.items() if reference}


def _settings(section: Section, findings: Findings) -> dict[str, str]:
    found: dict[str, str] = section.get("settings", {})
    for name in found:
        if not name.startswith("spark.sql."):
            close = did_you_mean(name, ("spark.sql.shuffle.partitions", "spark.sql.session.timeZone"))
            findings.error(
                section.position_of("settings"),
                f"{name!r} cannot be set in the file, only spark.sql.… can; set it on the command line: "
                f"runnel pipeline run FILE --set {name}=…{close}",
            )
    return found
