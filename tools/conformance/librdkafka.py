"""The integration tests of librdkafka, from a folder in which they are built."""

import os
import re
import subprocess
from pathlib import Path

from tools.broker_process import BrokerProcess
from tools.conformance.result import SuiteResult

FOLDER_VARIABLE = "RUNNEL_LIBRDKAFKA_TESTS"
"""The folder of librdkafka's own test program, ready to run."""

TEST = re.compile(r"_TEST\((\d{4}_\w+),\s*([A-Z_0-9| ]+)")
LEFT_OUT = re.compile(r"share_consumer|^8")
"""Tests of a feature that we do not have and that would wait for it, and interactive ones."""
TIMEOUT_S = 900


def run(tests: Path, folder: Path, only: str = "") -> SuiteResult:
    """Each test in a process of its own, all against one broker."""
    result = SuiteResult("librdkafka", "the integration tests of librdkafka")
    with BrokerProcess(folder / "data", {"num.partitions": "4"}) as broker:
        settings = folder / "librdkafka.conf"
        settings.write_text(f"bootstrap.servers={broker.bootstrap}\n")
        for test in _names(tests, only):
            if LEFT_OUT.search(test):
                result.skipped.append(test)
            else:
                # Some of these tests are about milliseconds: a busy machine gets a second attempt.
                result.record(test, any(_passes(tests, test, settings) for _ in range(2)))
    return result


def _names(tests: Path, only: str) -> list[str]:
    """The names of all tests that need a broker."""
    table = " ".join((tests / "test.c").read_text().split("struct test tests[]")[1].split("};")[0].split())
    return [name for name, flags in TEST.findall(table) if "LOCAL" not in flags and re.search(only, name)]


def _passes(tests: Path, test: str, settings: Path) -> bool:
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": "../src:../src-cpp",
        "RDKAFKA_TEST_CONF": str(settings),
        "TEST_KAFKA_VERSION": "4.3.0",
        "TESTS": test,
    }
    try:
        with settings.with_suffix(".log").open("wb") as log:
            done = subprocess.run(
                ["./test-runner", "-L", "-p1"],
                cwd=tests,
                env=environment,
                stdout=log,
                stderr=log,
                timeout=TIMEOUT_S,
                check=False,
            )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
