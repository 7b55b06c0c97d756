"""What earlier runs have seen, in a file of one line each: disks and lag as they were."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from runnel.pipelines.whole_files import replace_file

SAMPLES_MAX = 5000


@dataclass(frozen=True, slots=True)
class Sample:
    """How things were at one moment."""

    at_ms: int
    used_bytes: int
    total_bytes: int
    lag: Mapping[str, int] = field(default_factory=dict)


def read_history(path: Path) -> list[Sample]:
    """All samples, oldest first; lines that cannot be read are passed over."""
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
    """Keep a sample with those before; the file is replaced whole, a crash leaves the old or the new."""
    samples = [*read_history(path), sample][-SAMPLES_MAX:]
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, "".join(json.dumps(asdict(each), ensure_ascii=False) + "\n" for each in samples))
    return samples
