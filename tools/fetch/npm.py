"""Packages of npm, installed by the npm command with the settings of the machine."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tools.fetch.cache import cached
from tools.fetch.programs import Unavailable, find

TIMEOUT_S = 600.0


def installed(name: str, packages: Sequence[str], purpose: str) -> Path:
    """A folder in which packages, each as NAME@VERSION, are installed; `name` is that of the folder."""

    def fill(folder: Path) -> None:
        (folder / "package.json").write_text('{"private": true}\n')
        # Packages may run programs of theirs when they are installed; none of these needs to.
        command = [find("npm", purpose), "install", "--ignore-scripts", "--no-audit", "--no-fund", *packages]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        if done.returncode:
            raise Unavailable(
                f"npm could not install {', '.join(packages)}, needed to {purpose}: {done.stderr}"
            )

    return cached(name, fill)
