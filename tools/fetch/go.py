"""Sources of Go modules, downloaded by the go command with the settings of the machine."""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from tools.fetch.cache import cached
from tools.fetch.programs import Unavailable, find

TIMEOUT_S = 900.0


def module_source(module: str, version: str, purpose: str) -> Path:
    """A writable copy of a module's source; the go command's own copy is read-only."""

    def fill(folder: Path) -> None:
        go = find("go", purpose)
        with tempfile.TemporaryDirectory() as outside:
            done = subprocess.run(
                [go, "mod", "download", "-json", f"{module}@{version}"],
                cwd=outside,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        found = json.loads(done.stdout or "{}")
        if done.returncode or "Dir" not in found:
            raise Unavailable(
                f"Go could not fetch {module} {version}, needed to {purpose}: "
                f"{found.get('Error', done.stderr)}"
            )
        shutil.copytree(found["Dir"], folder, dirs_exist_ok=True, copy_function=shutil.copyfile)
        for path in [folder, *folder.rglob("*")]:
            if path.is_dir():
                path.chmod(0o755)

    return cached(f"{module.rpartition('/')[2]}-{version}", fill)
