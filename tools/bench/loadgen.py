"""The raw load generator: a small C program, compiled once into the user's cache."""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

SOURCE_VARIABLE = "RUNNEL_LOADGEN"


class NoLoadgen(Exception):
    """There is no load generator on this machine, and why."""


def build(root: Path) -> Path:
    """The program, compiled if it is not there yet."""
    named = os.environ.get(SOURCE_VARIABLE)
    source = Path(named) if named else root.parent / "shared" / "bench" / "loadgen.c"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not source.exists():
        raise NoLoadgen(f"no loadgen.c; say where it is: {SOURCE_VARIABLE}=path")
    if compiler is None:
        raise NoLoadgen("no C compiler")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "runnel-bench"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    program = cache / f"loadgen-{digest}"
    if not program.exists():
        cache.mkdir(parents=True, exist_ok=True)
        subprocess.run([compiler, "-O2", "-o", str(program), str(source)], check=True)
    return program


def run(
    program: Path, verb: str, port: int, *, seconds: float, strict: bool, **shape: Any
) -> dict[str, float]:
    """One load; see the program's own usage line for what the numbers mean."""
    fixed = [shape.pop(key) for key in ("connections", "in_flight")]
    rest = [shape.pop(key) for key in ("topic", "partitions", "records", "record_bytes")]
    tail = [shape.pop(key) for key in ("acks",) if key in shape]
    tail += [shape.pop(key) for key in ("offset_end", "fetch_bytes", "step") if key in shape]
    assert not shape, shape
    arguments = [verb, port, *fixed, seconds, *rest, *tail]
    done = subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    if result["err"] and strict:
        raise RuntimeError(f"loadgen {arguments}: {result['err']} errors: {done.stderr}")
    return result
