"""The integration tests of the Go client franz-go."""

import json
import os
import re
import select
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.conformance.result import SuiteResult
from tools.conformance.secured import ADMIN, MECHANISMS, SCRAM, Security, password
from tools.conformance.target import Target
from tools.fetch.cache import cached
from tools.fetch.go import module_source
from tools.fetch.programs import Unavailable, find
from tools.processes import child
from tools.token_issuer import STRANGER, token

MODULE, VERSION = "github.com/twmb/franz-go", "v1.22.2"
PURPOSE = "run the tests of the Go client franz-go"
LIMIT_S = 600
"""Tests that wait for a missing feature end with this limit; all others end long before."""
WITHOUT_TLS = ("TestIssue769",)
"""Tests with a dialer of their own, which the client refuses together with TLS: they end the whole suite."""
PROBE_TIMEOUT_S = 60.0
PROBES_AT_ONCE = 2


def source() -> Path:
    return module_source(MODULE, VERSION, PURPOSE)


def build(program: Path, folder: Path) -> Path:
    """A program around franz-go, built in a folder with the source that its own tests run from."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(program, folder)
    needs = (source() / "go.mod").read_text().split("require (")[1].split(")")[0]
    (folder / "go.mod").write_text(
        f"module program\n\ngo 1.21\n\nrequire (\n{MODULE} v0.0.0\n{needs})\nreplace {MODULE} => {source()}\n"
    )
    shutil.copy(source() / "go.sum", folder)
    built = subprocess.run(
        [find("go", PURPOSE), "build", "-mod=mod", "-o", "program", "."],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        raise Unavailable(f"{program.name} does not build: {built.stderr[-500:]}")
    return folder / "program"


def run(target: Target, records: int, folder: Path, only: str = "") -> SuiteResult:
    """The tests that talk to a broker, with fewer records than upstream's half million."""
    description = (
        f"the tests of the Go client franz-go {VERSION} that talk to a broker, {records} records per test"
    )
    if target.security is not None:
        description += "; over TLS with a certificate, and a program with each mechanism of SASL"
    result = SuiteResult("franz-go", description)
    names = [name for name in broker_tests() if re.search(only, name)]
    if target.security is not None:
        result.skipped += [name for name in names if name in WITHOUT_TLS]
        names = [name for name in names if name not in WITHOUT_TLS]
    settings = {
        "KGO_SEEDS": target.bootstrap,
        "KGO_TEST_RF": str(target.replication_factor),
        "KGO_TEST_RECORDS": str(records),
        # Without group.initial.rebalance.delay.ms=0 and with small topics the suite takes too long.
        "KGO_TEST_UNSAFE": "1",
        "KGO_TEST_MAX_TOPIC_PARTS": "5",
        "KGO_LOG_LEVEL": "none",
        **_security(target),
    }
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "franz-go.err").open("wb") as errors:
        done = subprocess.run(
            _go_test("-count=1", f"-timeout={LIMIT_S}s", "-json", "-run", f"^({'|'.join(names)})$", "."),
            cwd=source() / "pkg" / "kgo",
            env={**os.environ, **settings},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            check=False,
        )
    for test, action in sorted(last_actions(done.stdout.splitlines()).items()):
        if action == "skip":
            result.skipped.append(test)
        else:
            # A test that began and never ended was cut off by the limit: that is a failure too.
            result.record(test, action == "pass")
    if names and not result.total:
        raise RuntimeError(f"franz-go's tests did not run:\n{(folder / 'franz-go.err').read_text()[-2000:]}")
    if target.security is not None:
        _mechanisms(target.security, folder, only, result)
    return result


def _security(target: Target) -> dict[str, str]:
    """The suite authenticates by a certificate, and its tests of SCRAM by a password, without TLS."""
    security = target.security
    if security is None:
        return {}
    own = security.client
    return {
        "KGO_SEEDS": security.bootstrap("SSL"),
        "KGO_TEST_TLS": f"ca:{security.ca},cert:{own.certificate},key:{own.key}",
        "KGO_TEST_SCRAM_SEEDS": security.bootstrap("SASL_PLAINTEXT"),
        "KGO_TEST_SCRAM": f"{ADMIN}:{password(ADMIN)}",
    }


def _mechanisms(security: Security, folder: Path, only: str, result: SuiteResult) -> None:
    """Our program with franz-go: every mechanism is accepted, and refused with another secret."""
    program: Path | None = None
    own, other = security.client, security.stranger
    secrets_of = {name: (ADMIN, password(ADMIN), "wrong") for name in ("PLAIN", *SCRAM)}
    secrets_of["OAUTHBEARER"] = (
        "",
        token(subject=ADMIN),
        token(STRANGER, ADMIN),
    )
    for mechanism in (*MECHANISMS, "SSL"):
        name = f"authenticated by {'a certificate' if mechanism == 'SSL' else mechanism}"
        if not re.search(only, name):
            continue
        program = program or build(Path(__file__).with_name("franz_mechanism.go"), folder / "mechanism")
        server = security.bootstrap("SSL" if mechanism == "SSL" else "SASL_SSL")
        common = [str(program), server, f"franz-{mechanism}", str(security.ca), mechanism]
        user, secret, wrong = secrets_of.get(mechanism, (str(own.certificate), str(own.key), ""))
        accepted = _output([*common, user, secret])
        stranger = [str(other.certificate), str(other.key)]
        refused = _output([*common, *(stranger if mechanism == "SSL" else [user, wrong])])
        is_passed = accepted == (0, "value\n") and refused == (1, "")
        result.record(name, is_passed)


def _output(command: list[str]) -> tuple[int, str]:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout


def last_actions(lines: Iterable[str]) -> dict[str, str]:
    """Test → what `go test -json` reported of it last: run, pass, fail or skip."""
    last: dict[str, str] = {}
    for line in lines:
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("Test") and event.get("Action") in ("run", "pass", "fail", "skip"):
            last[event["Test"]] = event["Action"]
    return last


def broker_tests() -> list[str]:
    """The tests that connect to the broker they are given, or are skipped if they need another one.

    The suite does not mark them. So each test is started once with the address of a socket that only listens:
    what neither connects to it nor is skipped is a unit test.
    """

    def fill(folder: Path) -> None:
        program = folder / "kgo.test"
        package = source() / "pkg" / "kgo"
        subprocess.run(_go_test("-c", "-o", str(program), "."), cwd=package, check=True)
        listed = subprocess.run(
            [str(program), "-test.list", "^Test"], cwd=package, capture_output=True, text=True, check=True
        )
        names = [name for name in listed.stdout.split() if name.startswith("Test")]
        with ThreadPoolExecutor(PROBES_AT_ONCE) as probes:
            is_for_broker = list(probes.map(lambda name: needs_broker(program, package, name), names))
        wanted = [name for name, is_wanted in zip(names, is_for_broker, strict=True) if is_wanted]
        (folder / "tests.txt").write_text("\n".join(wanted) + "\n")
        program.unlink()

    return (cached(f"franz-go-{VERSION}-broker-tests", fill) / "tests.txt").read_text().split()


def needs_broker(program: Path, folder: Path, test: str) -> bool:
    """Does the test connect to the broker it is given, or is it skipped?"""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        seeds = f"127.0.0.1:{listener.getsockname()[1]}"
        environment: Mapping[str, str] = {**os.environ, "KGO_SEEDS": seeds, "KGO_LOG_LEVEL": "none"}
        with child(
            [str(program), "-test.v", "-test.run", f"^{test}$"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            return _connects(listener, process) or _is_skipped(process, test)


def _connects(listener: socket.socket, process: "subprocess.Popen[str]") -> bool:
    """Whether a connection is opened before the process ends; the kernel accepts it by itself."""
    waited_s, step_s = 0.0, 0.05
    while waited_s < PROBE_TIMEOUT_S:
        if select.select([listener], [], [], step_s)[0]:
            return True
        if process.poll() is not None:
            return bool(select.select([listener], [], [], 0)[0])
        waited_s += step_s
    return False


def _is_skipped(process: "subprocess.Popen[str]", test: str) -> bool:
    process.kill()
    assert process.stdout is not None
    return f"--- SKIP: {test}" in process.stdout.read()


def _go_test(*arguments: str) -> list[str]:
    return [find("go", PURPOSE), "test", *arguments]
