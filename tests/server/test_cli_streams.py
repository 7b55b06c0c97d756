"""Unbounded input and output: each line is processed on arrival."""

import os
import signal
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "runnel.server.cli"]


@pytest.fixture
def children_receive_interrupts():
    """Restore SIGINT: background jobs of a shell script ignore it, and so would their children."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.fixture
def start(runnel_session, children_receive_interrupts):
    """Start a command with pipes; processes still running at the end are killed."""
    started: list[subprocess.Popen[bytes]] = []

    def start_command(*arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            env={**os.environ, "RUNNEL_BOOTSTRAP": runnel_session.bootstrap_servers},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        started.append(process)
        return process

    yield start_command
    for process in started:
        process.kill()
        with process:
            pass


def test_produce_sends_each_line_on_arrival(run, start, name):
    run.ok("topic", "create", name)
    producing = start("produce", name, "--show-offsets")
    for number in range(3):
        producing.stdin.write(b"line\n")
        assert producing.stdout.readline() == f"{name}\t0\t{number}\n".encode()
    producing.stdin.close()
    assert producing.wait(30) == 0


def test_interrupt_while_waiting_for_input(run, start, name):
    run.ok("topic", "create", name)
    producing = start("produce", name, "--show-offsets")
    producing.stdin.write(b"line\n")
    producing.stdout.readline()
    producing.send_signal(signal.SIGINT)
    assert producing.wait(30) != 0
    assert b"Traceback" not in producing.stderr.read()


@pytest.mark.parametrize("group", [True, False])
def test_follow_prints_on_arrival_and_ends_on_interrupt(run, start, name, group):
    run.ok("topic", "create", name)
    following = start("consume", name, "--follow", *(["--group", name] if group else []))
    for number in range(3):
        run.ok("produce", name, f"line {number}")
        assert following.stdout.readline() == f"line {number}\n".encode()
    following.send_signal(signal.SIGINT)
    assert following.wait(30) == 0
    assert following.stderr.read() == b""
    if group:
        assert run.ok("group", "describe", name, "--json").json["lag"] == 0
