"""Runs Apache Kafka's command-line tools and franz-go's integration tests, and reads their verdicts."""

import json
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

KIT_VARIABLE = "RUNNEL_CONFORMANCE_KIT"


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
    command = [str(kit / "kafka-tools.sh"), bootstrap]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            for line in running.stdout:
                print("  " + line.rstrip(), flush=True)
                if found := re.match(r"(PASS|FAIL) (\S+)", line):
                    (verdict.passed if found[1] == "PASS" else verdict.failed).append(found[2])
        except BaseException:
            running.terminate()
            raise
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
