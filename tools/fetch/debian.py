"""Programs and libraries of Debian packages, unpacked into the cache: nothing is installed."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.fetch.cache import cached
from tools.fetch.programs import Unavailable, find

TIMEOUT_S = 300.0


def unpacked(name: str, packages: Sequence[str], purpose: str) -> Path:
    """The cached folder `name` with the files of the packages, laid out as below `/`."""

    def fill(folder: Path) -> None:
        if shutil.which("dpkg-deb") is None:
            raise Unavailable(f"{', '.join(packages)} is not installed; it is needed to {purpose}")
        apt = find("apt-get", purpose)
        with tempfile.TemporaryDirectory() as downloads:
            _run([apt, "download", *packages], Path(downloads), purpose)
            for package in sorted(Path(downloads).glob("*.deb")):
                _run(["dpkg-deb", "-x", str(package), str(folder)], folder, purpose)

    return cached(name, fill)


def _run(command: list[str], folder: Path, purpose: str) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{command[0]} did not end within {TIMEOUT_S:.0f} s") from error
    if done.returncode:
        raise Unavailable(f"{' '.join(command)} failed; it is needed to {purpose}:\n{done.stderr}")
