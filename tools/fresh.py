"""`make fresh`: checks that a clean clone of the current commit works, with an empty home and empty caches.

python -m tools.fresh                        make demo, then make test
python -m tools.fresh --without java mvn     the same on a PATH without these programs
python -m tools.fresh "bench QUICK=1"        other targets
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

from tools.processes import unwind_when_ended

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ["demo", "test"]
JAVA_PROGRAMS = ["java", "javac", "jshell", "mvn"]
TAIL_LINES = 15
INHERITED = ("VIRTUAL_ENV", "JAVA_HOME", "PYTHONPATH", "GOPATH", "GOCACHE", "GOMODCACHE", "MAKEFLAGS")
"""Variables that would let a clone see more than it brings."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fresh")
    parser.add_argument("targets", nargs="*", default=TARGETS, help="make targets, with their variables")
    parser.add_argument("--without", nargs="*", default=[], help="programs to hide from the PATH")
    parser.add_argument("--without-java", action="store_true", help=f"hide {', '.join(JAVA_PROGRAMS)}")
    options = parser.parse_args()
    unwind_when_ended()
    hidden = [*options.without, *(JAVA_PROGRAMS if options.without_java else [])]
    with tempfile.TemporaryDirectory(prefix="runnel-fresh-") as name:
        folder = Path(name)
        clone = folder / "clone"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        environment = clean_environment(folder, hidden)
        return 0 if all(run(target, clone, environment) for target in options.targets) else 1


def clean_environment(folder: Path, hidden: Collection[str]) -> dict[str, str]:
    """The environment of a new user: nothing in the home, nothing cached, some programs missing."""
    home = folder / "home"
    home.mkdir()
    environment = {key: value for key, value in os.environ.items() if key not in INHERITED}
    environment |= {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache"), "PIP_NO_CACHE_DIR": "1"}
    # Go marks what it downloads read-only, which could then not be deleted with the folder.
    environment["GOFLAGS"] = f"{environment.get('GOFLAGS', '')} -modcacherw".strip()
    if hidden:
        environment["PATH"] = str(visible_programs(folder / "bin", hidden))
    return environment


def visible_programs(folder: Path, hidden: Collection[str]) -> Path:
    """A folder of links to all programs of the PATH but the hidden ones."""
    folder.mkdir()
    for directory in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in directory.iterdir() if directory.is_dir() else ():
            link = folder / program.name
            if program.name not in hidden and not link.is_symlink() and os.access(program, os.X_OK):
                link.symlink_to(program)
    return folder


def run(target: str, clone: Path, environment: dict[str, str]) -> bool:
    """One make target in the clone; prints the end of its output."""
    print(f"== make {target}", flush=True)
    began = time.monotonic()
    done = subprocess.run(
        ["make", *shlex.split(target)],
        cwd=clone,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print("\n".join(done.stdout.splitlines()[-TAIL_LINES:]))
    print(f"== make {target}: exit {done.returncode} after {time.monotonic() - began:.0f} s", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
