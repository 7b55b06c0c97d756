"""Runs test suites that others wrote, and reads their verdicts."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.bench.systems import Kafka
from tools.broker_process import BrokerProcess
from tools.twin.interview import interview

KIT_VARIABLE = "RUNNEL_CONFORMANCE_KIT"
LIBRDKAFKA_VARIABLE = "RUNNEL_LIBRDKAFKA_TESTS"
"""The folder of librdkafka's own test program, ready to run."""

LIBRDKAFKA_TEST = re.compile(r"_TEST\((\d{4}_\w+),\s*([A-Z_0-9| ]+)")
LIBRDKAFKA_LEFT_OUT = re.compile(r"share_consumer|^8")
"""Tests of a feature that we do not have and that would wait for it, and those that wait for a person."""
LIBRDKAFKA_TEST_TIMEOUT_S = 900


@dataclass(slots=True)
class Verdict:
    """What one suite said, test by test."""

    suite: str
    what: str
    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return len(self.passed) + len(self.failed)


def kit_folder(root: Path) -> Path | None:
    """Where the scripts that fetch and run the suites live; they are no part of this repository."""
    named = os.environ.get(KIT_VARIABLE)
    folder = Path(named) if named else root.parent / "shared" / "conformance"
    return folder if (folder / "kafka-tools.sh").exists() else None


def kafka_tools(kit: Path, bootstrap: str, only: str = "") -> Verdict:
    """Every command-line tool that ships with Apache Kafka."""
    verdict = Verdict("Apache Kafka's tools", "the command-line tools of Apache Kafka 4.3, one check per use")
    environment = {**os.environ, "NODE": "1", "NODES": "1", "ONLY": only}
    print_and_judge([str(kit / "kafka-tools.sh"), bootstrap], environment, r"(PASS|FAIL) (\S+)", verdict)
    return verdict


def print_and_judge(
    command: list[str], environment: Mapping[str, str], pattern: str, verdict: Verdict
) -> None:
    """Run a script that prints one line per check, and take down what it says."""
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            for line in running.stdout:
                print("  " + line.rstrip(), flush=True)
                if found := re.match(pattern, line):
                    (verdict.passed if found[1] == "PASS" else verdict.failed).append(found[2])
        except BaseException:
            running.terminate()
            raise


def ecosystem(kit: Path, bootstrap: str) -> Verdict:
    """What people build on Kafka: Streams, Connect and MirrorMaker, each exactly once where it can be."""
    what = (
        "Kafka Streams with exactly_once_v2, Kafka Connect with an exactly-once source, and MirrorMaker 2,"
        " all of Apache Kafka 4.3"
    )
    verdict = Verdict("The ecosystem", what)
    print_and_judge([str(kit / "ecosystem.sh"), bootstrap], os.environ.copy(), r"(PASS|FAIL) (.+)", verdict)
    return verdict


def franz_go(kit: Path, bootstrap: str, records: int, scratch: Path, only: str = "") -> Verdict:
    """The Go client's integration tests, with fewer records than upstream's half million."""
    what = f"the integration tests of the Go client franz-go, {records} records per test"
    verdict = Verdict("franz-go", what)
    events = scratch / "franz-go.json"
    # Tests that wait for a missing feature end with the time limit; all others are done long before.
    environment = {"LIMIT": "600", **os.environ, "OUT": str(events), "RUN": only}
    subprocess.run([str(kit / "franz-go.sh"), bootstrap, str(records)], env=environment, check=False)
    last: dict[str, str] = {}
    for line in events.read_text().splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("Test") and event.get("Action") in ("run", "pass", "fail", "skip"):
            last[event["Test"]] = event["Action"]
    for test, action in sorted(last.items()):
        # A test that began and never ended was cut off by the time limit: that is a failure too.
        {"pass": verdict.passed, "skip": verdict.skipped}.get(action, verdict.failed).append(test)
    return verdict


def twin(kit: Path, scratch: Path, settings: dict[str, str]) -> Verdict:
    """Our own questions, judged by Apache Kafka: the same to both, and the answers compared."""
    what = "questions that Runnel and Apache Kafka 4.3 are asked in every version of the protocol"
    verdict = Verdict("Answers like Apache Kafka's", what)
    kafka = Kafka(kit / "kafka-peer.sh").launch(scratch / "kafka")
    try:
        with BrokerProcess(scratch / "twin", settings) as broker:
            questions = interview(broker.port, kafka.port)
    finally:
        kafka.stop()
    for question, differences in questions.items():
        (verdict.failed if differences else verdict.passed).append(question)
        for difference in differences[:1]:
            print(f"  {difference}")
    return verdict


def librdkafka(folder: Path, scratch: Path, only: str = "") -> Verdict:
    """The tests of the C client that confluent-kafka and kcat are made of, each in a process of its own."""
    verdict = Verdict("librdkafka", "the integration tests of librdkafka")
    with BrokerProcess(scratch / "librdkafka", {"num.partitions": "4"}) as broker:
        settings = scratch / "librdkafka.conf"
        settings.write_text(f"bootstrap.servers={broker.bootstrap}\n")
        for test in _librdkafka_tests(folder, only):
            if LIBRDKAFKA_LEFT_OUT.search(test):
                verdict.skipped.append(test)
                continue
            # Some of these tests are about milliseconds: a busy machine gets a second chance.
            passes = any(_librdkafka_passes(folder, test, settings) for _ in range(2))
            print(f"  {'PASS' if passes else 'FAIL'} {test}", flush=True)
            (verdict.passed if passes else verdict.failed).append(test)
    return verdict


def _librdkafka_tests(folder: Path, only: str) -> list[str]:
    """The names of all tests that need a broker."""
    table = " ".join((folder / "test.c").read_text().split("struct test tests[]")[1].split("};")[0].split())
    found = LIBRDKAFKA_TEST.findall(table)
    return [name for name, flags in found if "LOCAL" not in flags and re.search(only, name)]


def _librdkafka_passes(folder: Path, test: str, settings: Path) -> bool:
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": "../src:../src-cpp",
        "RDKAFKA_TEST_CONF": str(settings),
        "TEST_KAFKA_VERSION": "4.3.0",
        "TESTS": test,
    }
    command = ["./test-runner", "-L", "-p1"]
    try:
        with settings.with_suffix(".log").open("wb") as log:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=log,
                timeout=LIBRDKAFKA_TEST_TIMEOUT_S,
                check=False,
            )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
