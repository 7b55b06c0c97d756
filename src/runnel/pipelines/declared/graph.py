"""The graph of sources, steps and sinks: order, cycles, unknown names, unbounded joins."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from runnel.pipelines.declared.declaration import (
    Declaration,
    ParquetTarget,
    Reference,
    Source,
    Step,
    TopicTarget,
)
from runnel.pipelines.declared.findings import Findings, did_you_mean
from runnel.pipelines.declared.patterns import reads
from runnel.pipelines.declared.topic_frames import has_malformed


def check_graph(declaration: Declaration, findings: Findings) -> None:
    """Check everything that does not require analysing queries."""
    known = known_names(declaration)
    for step in declaration.steps.values():
        for reference in step.inputs:
            _check_reference(reference, known, f"step {step.name!r}", findings)
    for name, reference in declaration.sink_inputs.items():
        _check_reference(reference, known, f"sink {name!r}", findings)
    for cycle in cycles(declaration.steps):
        first = declaration.steps[cycle[0]]
        way = " → ".join([*cycle, cycle[0]])
        findings.error(first.position, f"cycle of steps: {way}")
    _check_joins(declaration, findings)
    _check_targets(declaration, findings)
    _check_queries(declaration, findings)
    _check_unused(declaration, findings)


def known_names(declaration: Declaration) -> dict[str, str]:
    """The names of sources and steps by their lower-case form: Spark compares without case."""
    names = [*declaration.sources, *declaration.steps, *declaration.broken]
    return {name.lower(): name for name in names}


def _check_reference(reference: Reference, known: Mapping[str, str], what: str, findings: Findings) -> None:
    if reference.name.lower() in known:
        return
    close = did_you_mean(reference.name, known.values())
    names = f"; available: {', '.join(known.values())}" if known else ""
    findings.error(
        reference.position,
        f"{what} reads {reference.name!r}, which is neither a source nor a step{close or names}",
    )


def inputs_of(step: Step, steps: Mapping[str, Step]) -> list[str]:
    """The steps that this one depends on."""
    by_lower = {name.lower(): name for name in steps}
    found = [
        by_lower[reference.name.lower()] for reference in step.inputs if reference.name.lower() in by_lower
    ]
    return list(dict.fromkeys(found))


def in_order(steps: Mapping[str, Step]) -> list[Step]:
    """Steps in topological order, without those in cycles."""
    done: dict[str, Step] = {}
    waiting = dict(steps)
    while ready := [
        step for step in waiting.values() if all(name in done for name in inputs_of(step, steps))
    ]:
        for step in ready:
            done[step.name] = waiting.pop(step.name)
    return list(done.values())


def cycles(steps: Mapping[str, Step]) -> Iterator[list[str]]:
    """The cycles, each starting with its first step in the file."""
    order = {step.name for step in in_order(steps)}
    rest = {name: step for name, step in steps.items() if name not in order}
    reported: set[str] = set()
    for name in rest:
        path: list[str] = []
        at: str | None = name
        while at is not None and at not in path and at not in reported:
            path.append(at)
            at = next((need for need in inputs_of(rest[at], steps) if need in rest), None)
        if at is not None and at in path:
            ring = path[path.index(at) :]
            first = next(
                index for index, member in enumerate(ring) if member == min(ring, key=list(steps).index)
            )
            yield ring[first:] + ring[:first]
        reported.update(path)


def needed_for(name: str, declaration: Declaration) -> Declaration:
    """The pipeline reduced to what this source or step depends on."""
    by_lower = known_names(declaration)
    needed: set[str] = set()
    waiting = [name]
    while waiting:
        at = by_lower.get(waiting.pop().lower(), "")
        if at in declaration.steps and at not in needed:
            waiting += [reference.name for reference in declaration.steps[at].inputs]
        needed.add(at)
    return replace(
        declaration,
        sources={key: source for key, source in declaration.sources.items() if key in needed},
        steps={key: step for key, step in declaration.steps.items() if key in needed},
    )


def sources_of(name: str, declaration: Declaration) -> list[Source]:
    """The sources that this source or step depends on."""
    return list(needed_for(name, declaration).sources.values())


def _check_joins(declaration: Declaration, findings: Findings) -> None:
    for step in declaration.steps.values():
        if not step.joins or len(step.inputs) < 2:
            continue
        for reference in step.inputs:
            for source in sources_of(reference.name, declaration):
                if source.watermark is None and not source.keeps_all:
                    findings.error(
                        source.position,
                        f"step {step.name!r} joins rows of source {source.name!r}, which has no watermark, "
                        "so its state would grow without bound: add one, such as "
                        "watermark: {column: at, delay: 10 minutes}, or watermark: none to accept this",
                    )


def dead_letter_query(source: Source) -> str:
    """The name of the query that writes the dead letters of a source."""
    return f"dead-letters-{source.name}"


def _check_queries(declaration: Declaration, findings: Findings) -> None:
    """Check that query names are unique, which Spark requires."""
    taken = {
        dead_letter_query(source): source
        for source in declaration.sources.values()
        if source.on_malformed == "dead-letter" and has_malformed(source)
    }
    for sink in declaration.sinks.values():
        if sink.name in taken:
            findings.error(
                sink.position,
                f"{sink.name!r} is the name of the query that writes the dead letters of source "
                f"{taken[sink.name].name!r}: rename the sink",
            )


def _check_targets(declaration: Declaration, findings: Findings) -> None:
    """Check for topics that are both read and written, and directories of two sinks."""
    folders: dict[str, str] = {}
    for sink in declaration.sinks.values():
        match sink.target:
            case TopicTarget(topic=topic):
                for source in sources_of(sink.input.name, declaration):
                    if reads(source, topic, declaration):
                        by = f" by its pattern {source.pattern}" if source.pattern else ""
                        findings.error(
                            sink.position,
                            f"sink {sink.name!r} writes to {topic!r}, which source {source.name!r} reads"
                            f"{by}: its rows would loop",
                        )
            case ParquetTarget(path=path):
                if path in folders:
                    findings.error(
                        sink.position,
                        f"sink {sink.name!r} writes to the directory of sink {folders[path]!r}: use one "
                        "directory per sink",
                    )
                folders[path] = sink.name


def _check_unused(declaration: Declaration, findings: Findings) -> None:
    # A part with errors may be what uses them.
    if findings.has_errors:
        return
    needed = [needed_for(sink.input.name, declaration) for sink in declaration.sinks.values()]
    for step in declaration.steps.values():
        if not any(step.name in part.steps for part in needed):
            findings.warn(step.position, f"step {step.name!r} is not used by any sink")
    for source in declaration.sources.values():
        if not any(source.name in part.sources for part in needed):
            findings.warn(source.position, f"source {source.name!r} is not used by any sink")
