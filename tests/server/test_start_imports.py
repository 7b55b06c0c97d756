"""A broker's start imports what it needs: each of these modules would make every start slower."""

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, json, sys
from runnel.server.cli import main
from runnel.server import node

async def started(self):
    await start(self)
    print(json.dumps(sorted(sys.modules)), flush=True)
    asyncio.get_running_loop().call_soon(sys.exit)

start, node.Node.start = node.Node.start, started
main(["serve", "--listen", "127.0.0.1:0", "--data-dir", "data"])
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory) -> set[str]:
    import json

    outcome = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path_factory.mktemp("start"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = [line for line in outcome.stdout.splitlines() if line.startswith("[")]
    assert lines, outcome.stderr
    return set(json.loads(lines[0]))


@pytest.mark.parametrize(
    "module",
    [
        "argparse",
        "csv",
        "email",
        "httptools",
        "importlib.metadata",
        "jinja2",
        "random",
        "re2",
        "rich",
        "runnel.client.cluster",
        "runnel.gateway",
        "runnel.pipelines",
        "runnel.server.bench",
        "runnel.server.cli.app",
        "runnel.server.cli.topic",
        "runnel.server.demo",
        "secrets",
        "starlette",
        "tempfile",
        "uvicorn",
        "zipfile",
    ],
)
def test_a_start_does_not_import(imported: set[str], module: str) -> None:
    assert module not in imported


def test_what_a_start_does_import_is_seen(imported: set[str]) -> None:
    assert {"asyncio", "runnel.server.node", "runnel.broker.runtime.pipeline"} <= imported


def test_handlers_are_imported_when_they_are_first_called(imported: set[str]) -> None:
    assert "runnel.broker.apis.create_topics" not in imported
