"""Examples in the documentation are executed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from runnel.testing import Broker
from tests.tls_proxy import TlsProxy, broker_behind
from tools.certificates import CaFolder

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(.+?)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    found = [body for kind, body in _BLOCK.findall((DOCS / page).read_text()) if kind == language]
    assert found, f"{page} has no {language} blocks"
    return found


@pytest.mark.slow
def test_examples_of_the_command_line_page(tmp_path):
    program = f'runnel() {{ {sys.executable} -m runnel.server.cli "$@"; }}\nset -eu\n'
    with Broker() as broker:
        ended = subprocess.run(
            ["bash", "-c", program + "\n".join(blocks("CLI.md", "bash"))],
            cwd=tmp_path,
            env={**os.environ, "RUNNEL_BOOTSTRAP": broker.bootstrap_servers},
            capture_output=True,
            text=True,
            timeout=500,
        )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    assert "a cup of tea" in ended.stdout


def test_command_line_page_covers_every_command():
    from tests.server.test_cli_help import ALL

    page = (DOCS / "CLI.md").read_text()
    assert [path for path in ALL if f"runnel {' '.join(path)}" not in page] == [("version",)]


def test_examples_of_the_security_check(tmp_path):
    program = f'runnel() {{ {sys.executable} -m runnel.server.cli "$@"; }}\nset -eu\n'
    script = program + "\n".join(blocks("SECURITY.md", "bash check"))
    ended = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "HIGH anonymous-super-user" in ended.stdout
    assert "there are findings of severity high" in ended.stdout
    assert '"name": "scram-in-clear"' in ended.stdout


@pytest.mark.parametrize("block", blocks("TESTING.md", "python"))
def test_examples_of_the_testing_page(block, tmp_path):
    (tmp_path / "program.py").write_text(block)
    subprocess.run([sys.executable, "-W", "error", "program.py"], cwd=tmp_path, check=True, timeout=60)


def test_pytest_examples_of_the_testing_page(tmp_path):
    (tmp_path / "test_page.py").write_text("\n".join(blocks("TESTING.md", "python pytest")))
    command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", str(tmp_path)]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)


def test_examples_of_the_security_page_for_clients(tmp_path):
    ca = CaFolder(tmp_path)
    proxy = TlsProxy(ca.issue("server", "127.0.0.1"), ca, asks_for_certificates=True)
    ca.issue("client")
    (tmp_path / "client.properties").write_text("".join(blocks("SECURITY.md", "properties clients")))
    program = f'runnel() {{ {sys.executable} -m runnel.server.cli "$@"; }}\nset -eu\n'
    with broker_behind(proxy):
        address = f"127.0.0.1:{proxy.port}"
        ended = subprocess.run(
            ["bash", "-c", program + "\n".join(blocks("SECURITY.md", "bash clients"))],
            cwd=tmp_path,
            env={**os.environ, "RUNNEL_BOOTSTRAP": address},
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "a cup of tea" in ended.stdout
        (tmp_path / "program.py").write_text(
            f"bootstrap = {address!r}\n" + "\n".join(blocks("SECURITY.md", "python clients"))
        )
        subprocess.run([sys.executable, "-W", "error", "program.py"], cwd=tmp_path, check=True, timeout=60)
