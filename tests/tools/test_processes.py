"""Harnesses that are ended from outside take their brokers with them."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools.broker_process import answers
from tools.processes import child

ROOT = Path(__file__).resolve().parent.parent.parent
HARNESS = """
import sys, time
from pathlib import Path
from tools.broker_process import BrokerProcess
from tools.processes import unwind_when_ended
unwind_when_ended()
with BrokerProcess(Path(sys.argv[1])) as broker:
    print(broker.port, broker.pid, flush=True)
    time.sleep(100)
"""
STARTING = """
import sys, time
from pathlib import Path
from tools.broker_process import BrokerProcess
from tools.processes import unwind_when_ended
unwind_when_ended()
class NeverThere(BrokerProcess):
    def wait_until_answering(self, timeout_s):
        print(0, self.pid, flush=True)
        time.sleep(100)
NeverThere(Path(sys.argv[1])).start()
"""


@pytest.mark.parametrize("program", [HARNESS, STARTING], ids=["running", "starting"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_broker_ends_with_its_harness(tmp_path, program, number):
    command = [sys.executable, "-c", program, str(tmp_path / "data")]
    with child(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as harness:
        assert harness.stdout is not None
        port, pid = map(int, harness.stdout.readline().split())
        assert not port or answers(port, timeout_s=20)
        harness.send_signal(number)
        assert harness.wait(60) == 128 + number
    assert not is_running(pid)


def is_running(pid: int) -> bool:
    """Is it there, and more than an entry that waits to be collected?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
