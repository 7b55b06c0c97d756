"""The commands of docs/HTTP.md print what the page shows."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.gateway.http.clients import Client

PAGE = Path(__file__).parents[3] / "docs" / "HTTP.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_transcript(client: Client, tmp_path: Path) -> None:
    [transcript] = re.findall(r"```sh\n(\$.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", transcript, re.MULTILINE)
    assert len(steps) >= 8
    for command, shown in steps:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env={**os.environ, "URL": client.url},
            capture_output=True,
            text=True,
            timeout=60,
        )
        printed = done.stdout if done.stdout.endswith("\n") else f"{done.stdout}\n"
        pattern = ".+?".join(map(re.escape, shown.split("…")))
        assert re.fullmatch(pattern, printed), (command, printed, done.stderr)
