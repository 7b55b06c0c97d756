"""Samples of earlier runs, one JSON line each: disk usage and lag."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from runnel.pipelines.atomic_files import replace_file

SAMPLES_MAX = 5000


@dataclass(frozen=True, slots=True)
class Sample:
    """Disk usage and lag at one time."""

    at_ms: int
    used_bytes: int
    total_bytes: int
    lag: Mapping[str, int] = field(default_factory=dict)


def read_history(path: Path) -> list[Sample]:
    """All samples, oldest first; invalid lines are skipped."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []
    samples = []
    for line in lines:
        try:
            samples.append(Sample(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return sorted(samples, key=lambda sample: sample.at_ms)


def add_sample(path: Path, sample: Sample) -> list[Sample]:
    """Append a sample; the file is replaced atomically."""
    samples = [*read_history(path), sample][-SAMPLES_MAX:]
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, "".join(json.dumps(asdict(each), ensure_ascii=False) + "\n" for each in samples))
    return samples
