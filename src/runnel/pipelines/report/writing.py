"""Writes a report: the page, and the same data as JSON."""

import json
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

from runnel.pipelines.atomic_files import replace_file
from runnel.pipelines.report.page import Page, render

PAGE = "index.html"
DATA = "report.json"


def report_folder(job: str, now_ms: int, root: Path = Path(".runnel/reports")) -> Path:
    """The default folder of a report."""
    return root / f"{job}-{datetime.fromtimestamp(now_ms / 1000, UTC):%Y%m%d-%H%M%S}"


def write_report(folder: Path, page: Page, data: object) -> Path:
    """Write both files atomically; returns the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / DATA, json.dumps(plain(data), indent=2, ensure_ascii=False) + "\n")
    replace_file(folder / PAGE, render(page))
    return folder / PAGE


def plain(value: Any) -> Any:
    """Convert a value for JSON: dataclasses become objects, bytes become strings."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    return value
