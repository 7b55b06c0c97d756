"""The starting offsets of sources, determined once for all queries of a pipeline.

Every sink reads the topics separately, and so does the query that writes dead letters. If each query looked
up `latest` when it starts, a record could be read by one and missed by another.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runnel.client.offsets import EARLIEST
from runnel.pipelines.atomic_files import replace_file
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.checkpoint import local_path
from runnel.pipelines.declared.declaration import Declaration, Source
from runnel.pipelines.errors import BadCheckpoint

FILE = "starts.json"

Starts = dict[str, dict[str, int]]
"""Offsets by topic and partition."""


def pinned_starts(declaration: Declaration, broker: BrokerView, checkpoint: str) -> dict[str, Starts]:
    """The starting offsets by source, without the sources that start at the earliest offset."""
    chosen = [source for source in declaration.sources.values() if source.start != "earliest"]
    folder = local_path(checkpoint)
    if not chosen or folder is None:
        return {}
    file = folder / FILE
    kept = _kept(file)
    new = {
        source.name: _looked_up(source, declaration, broker) for source in chosen if source.name not in kept
    }
    if new:
        # Durable before any query starts: a later lookup would return other offsets.
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, json.dumps({**kept, **new}), durable=True)
    return {
        source.name: _as_of_now(source, {**kept, **new}[source.name], declaration, broker)
        for source in chosen
    }


def _kept(file: Path) -> dict[str, Starts]:
    try:
        kept: dict[str, Starts] = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise BadCheckpoint(f"{file} is not a valid file of starting offsets: {error}") from error
    return kept


def _looked_up(source: Source, declaration: Declaration, broker: BrokerView) -> Starts:
    from runnel.client.offsets import LATEST
    from runnel.pipelines.source.options import Bound
    from runnel.pipelines.source.planning import to_json
    from runnel.pipelines.source.resolving import starting_offsets, subscribed

    options = _options(source, declaration)
    partitions = subscribed(broker, options.subscription)
    first = broker.earliest_offsets(partitions)
    last = broker.latest_offsets(partitions, isolation=options.isolation)
    bound = options.starting or Bound(moment=LATEST)
    return to_json(starting_offsets(broker, options, bound, first, last))


def _as_of_now(
    source: Source, starts: Mapping[str, Mapping[str, int]], declaration: Declaration, broker: BrokerView
) -> Starts:
    """Starting offsets of all current partitions; newer partitions start at the earliest offset.

    Records that were deleted since are not data loss for a query without a checkpoint.
    """
    from runnel.pipelines.source.resolving import subscribed

    complete: Starts = {}
    partitions = subscribed(broker, _options(source, declaration).subscription)
    first = broker.earliest_offsets(partitions)
    for partition in partitions:
        kept = starts.get(partition.topic, {}).get(str(partition.partition), EARLIEST)
        offset = kept if kept == EARLIEST else max(kept, first[partition])
        complete.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return complete


def _options(source: Source, declaration: Declaration) -> Any:
    from runnel.pipelines.declared.topic_frames import read_options_of
    from runnel.pipelines.source.options import read_options

    return read_options(read_options_of(source, declaration, "starts", None))
