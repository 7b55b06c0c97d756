"""The examples of docs/REGISTRY.md are executed."""

import os
import subprocess
import sys

from runnel.gateway.options import GatewayOptions
from runnel.testing import Broker
from tests.gateway.gateways import serving
from tests.server.test_docs import blocks

ADDRESS = "http://127.0.0.1:8080"


def test_examples(tmp_path):
    program = f'runnel() {{ {sys.executable} -m runnel.server.cli "$@"; }}\nset -eu\n'
    with Broker() as broker, serving(GatewayOptions(broker.bootstrap_servers)) as visitor:
        script = program + "\n".join(blocks("REGISTRY.md", "bash")).replace(ADDRESS, visitor.origin)
        ended = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env={
                **os.environ,
                "RUNNEL_REGISTRY": visitor.origin,
                "RUNNEL_BOOTSTRAP": broker.bootstrap_servers,
            },
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "field note of Order is not written" in ended.stderr
        assert "not compatible" in ended.stdout
        assert '+      "name": "note",' in ended.stdout
        assert 'it does not fit schema 2: at id: "x" is not of type long' in ended.stderr
        assert '{"id":1,"note":"two cups"}\n{"id":2,"note":""}\n' in ended.stdout
        assert "the value does not begin with a zero byte and the id of a schema" in ended.stderr
        code = "\n".join(blocks("REGISTRY.md", "python")).replace(ADDRESS, visitor.origin)
        (tmp_path / "program.py").write_text(code + "    assert value[0] == 0\n")
        subprocess.run([sys.executable, "program.py"], cwd=tmp_path, check=True, timeout=60)
