"""Clients of the registry in other languages: two of npm, one of Go."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.fetch.cache import cached
from tools.fetch.npm import installed
from tools.fetch.programs import Unavailable, find

PURPOSE = "test the schema registry with other clients"
PROGRAMS = Path(__file__).parent / "programs"
PACKAGES = ("@kafkajs/confluent-schema-registry@4.1.0", "@confluentinc/schemaregistry@1.10.1")
FRANZ = "github.com/twmb/franz-go/pkg/sr", "v1.8.0"

pytestmark = pytest.mark.long


def ended_well(command: list[str], **options) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)
    assert (ended.returncode, ended.stdout) == (0, "ok\n"), ended.stderr


@pytest.mark.parametrize("program", ["kafkajs", "confluent"])
def test_clients_of_npm(registry, program):
    try:
        node, folder = find("node", PURPOSE), installed("npm-schema-registry-1.10.1", PACKAGES, PURPOSE)
    except Unavailable as reason:
        pytest.skip(str(reason))
    modules = {**os.environ, "NODE_PATH": str(folder / "node_modules")}
    ended_well([node, str(PROGRAMS / f"{program}.cjs"), registry.origin], env=modules)


def test_franz_go(registry):
    def fill(folder: Path) -> None:
        go = find("go", PURPOSE)
        module, version = FRANZ
        (folder / "go.mod").write_text(f"module program\n\ngo 1.21\n\nrequire {module} {version}\n")
        shutil.copy(PROGRAMS / "franz.go", folder / "main.go")
        built = subprocess.run(
            [go, "build", "-mod=mod", "-o", "program", "."],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if built.returncode:
            raise Unavailable(f"{module} {version} could not be built: {built.stderr}")

    try:
        digest = hashlib.sha256((PROGRAMS / "franz.go").read_bytes()).hexdigest()[:12]
        folder = cached(f"franz-sr-{FRANZ[1]}-{digest}", fill)
    except Unavailable as reason:
        pytest.skip(str(reason))
    ended_well([str(folder / "program"), registry.origin])
