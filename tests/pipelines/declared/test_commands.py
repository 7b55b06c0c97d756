"""`runnel pipeline validate`, `init`, and `run` with an invalid file."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from runnel.pipelines.declared.counting import Outcome
from runnel.pipelines.declared.example import example_text
from runnel.pipelines.declared.job import DeclaredOptions
from tests.server.cli import CommandLine

BAD = """\
name: shop
sources:
  orders: {topc: orders, format: string}
sinks:
  out: {from: order, console: true}
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine(None, capsys, tmp_path, monkeypatch)


def test_the_example_is_valid(run: CommandLine) -> None:
    run.ok("pipeline", "init")
    assert Path("pipeline.yaml").read_text("utf-8") == example_text()
    assert run.ok("pipeline", "validate", "--no-spark", "pipeline.yaml").out == ""


def test_the_example_refers_to_its_own_file(run: CommandLine) -> None:
    run.ok("pipeline", "init", "shop.yaml")
    assert "runnel pipeline run shop.yaml" in Path("shop.yaml").read_text("utf-8")


def test_a_file_is_never_overwritten_by_accident(run: CommandLine) -> None:
    Path("shop.yaml").write_text("mine")
    outcome = run("pipeline", "init", "shop.yaml")
    assert (outcome.code, outcome.err) == (
        1,
        "error: shop.yaml already exists; use --force to overwrite it\n",
    )
    assert Path("shop.yaml").read_text() == "mine"
    run.ok("pipeline", "init", "shop.yaml", "--force")
    assert Path("shop.yaml").read_text() != "mine"
    assert run("pipeline", "init", "nowhere/shop.yaml").code == 1


def test_errors_are_reported_as_text_and_as_json(run: CommandLine) -> None:
    Path("shop.yaml").write_text(BAD)
    outcome = run("pipeline", "validate", "--no-spark", "shop.yaml")
    assert outcome.code == 1
    assert outcome.lines == [
        "shop.yaml:3:12: source 'orders' has no key 'topc': did you mean 'topic'?",
        "shop.yaml:5:15: sink 'out' reads 'order', which is neither a source nor a step: "
        "did you mean 'orders'?",
    ]
    outcome = run("pipeline", "validate", "--no-spark", "--json", "shop.yaml")
    assert outcome.code == 1
    assert outcome.json["ok"] is False
    assert outcome.json["findings"][0] == {
        "line": 3,
        "column": 12,
        "severity": "error",
        "message": "source 'orders' has no key 'topc': did you mean 'topic'?",
    }


def test_a_file_with_errors_is_not_run(run: CommandLine) -> None:
    Path("shop.yaml").write_text(BAD)
    outcome = run("pipeline", "run", "shop.yaml", "--once")
    assert outcome.code == 1
    assert "shop.yaml:3:12: source 'orders' has no key 'topc'" in outcome.err


GOOD = """\
name: shop
broker: "file:1"
sources:
  orders: {topic: orders, format: string}
sinks:
  out: {from: orders, console: true}
"""


@pytest.mark.parametrize(
    ("arguments", "broker", "in_doubt"),
    [
        ((), None, "fail"),
        (("--in-doubt", "write"), None, "write"),
        (("-b", "environment:1", "--in-doubt", "skip"), "environment:1", "skip"),
    ],
)
def test_options_of_a_run(
    run: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    broker: str | None,
    in_doubt: str,
) -> None:
    taken: list[DeclaredOptions] = []

    def note(session: object, options: DeclaredOptions, progress: object) -> Outcome:
        taken.append(options)
        return Outcome("shop")

    monkeypatch.setattr("runnel.pipelines.session.spark_session", lambda *_, **__: nullcontext())
    monkeypatch.setattr("runnel.pipelines.declared.job.run", note)
    monkeypatch.setenv("RUNNEL_BOOTSTRAP", "environment:1")
    Path("shop.yaml").write_text(GOOD)
    run.ok("pipeline", "run", "shop.yaml", *arguments)
    assert [(options.broker, options.in_doubt) for options in taken] == [(broker, in_doubt)]
    assert taken[0].declaration.broker == "file:1"


def test_values_of_in_doubt(run: CommandLine) -> None:
    Path("shop.yaml").write_text(GOOD)
    assert run("pipeline", "run", "shop.yaml", "--in-doubt", "maybe").code == 2


def test_a_missing_file(run: CommandLine) -> None:
    for arguments in (("validate", "--no-spark"), ("run",)):
        outcome = run("pipeline", *arguments, "nothing.yaml")
        assert outcome.code == 1
        assert outcome.err == "error: cannot read nothing.yaml: No such file or directory\n"
