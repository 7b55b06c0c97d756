"""`runnel pipeline …` before Spark comes into it."""

import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from runnel.client.properties import NO_PROPERTIES
from runnel.server.cli.options import BOOTSTRAP_DEFAULT
from runnel.server.cli.pipeline.app import JobOrFile
from runnel.server.cli.pipeline.options import JobOptions, job
from runnel.server.cli.pipeline.running import as_document

TAKEN: list[tuple[str, JobOptions, str]] = []

app = typer.Typer()
run = typer.Typer(cls=JobOrFile)
app.add_typer(run, name="run")


@app.callback()
def root() -> None:
    """A tree as that of `runnel pipeline`."""


@run.command()
@job(streams=True)
def copy(
    options: JobOptions, topic: Annotated[str, typer.Argument(help="What.")], *, to: str = "nowhere"
) -> None:
    """Copy."""
    TAKEN.append(("copy", options, f"{topic} to {to}"))


@run.command("file")
@job(streams=False)
def run_file(options: JobOptions, path: Annotated[str, typer.Argument(help="Which.")]) -> None:
    """Run a file."""
    TAKEN.append(("file", options, path))


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RUNNEL_BOOTSTRAP", raising=False)
    TAKEN.clear()
    return lambda *arguments, **more: CliRunner().invoke(app, ["run", *arguments], **more)


def taken() -> tuple[str, JobOptions, str]:
    [one] = TAKEN
    return one


def test_a_job_gets_its_own_options_and_the_shared_ones(call):
    arguments = "copy orders --to there --once --checkpoint c --set a.b=1 --set c=x=y --metrics m --quiet"
    assert call(*arguments.split(), "--json", "-b", "h:1", "--master", "local[2]").exit_code == 0
    assert taken() == (
        "copy",
        JobOptions(
            bootstrap_given="h:1",
            properties=NO_PROPERTIES,
            properties_flag=None,
            bootstrap_flag="h:1",
            master="local[2]",
            settings={"a.b": "1", "c": "x=y"},
            once=True,
            checkpoint_given="c",
            as_json=True,
            metrics="m",
            is_quiet=True,
        ),
        "orders to there",
    )


def test_what_is_left_out_has_a_default(call):
    assert call("copy", "orders").exit_code == 0
    _, options, _ = taken()
    assert (options.master, options.once, options.settings) == ("local[*]", None, {})
    assert (options.bootstrap_given, options.bootstrap) == (None, BOOTSTRAP_DEFAULT)
    assert options.checkpoint("copy") == ".runnel/checkpoints/copy"


def test_the_environment_may_name_the_broker(call):
    assert call("copy", "orders", env={"RUNNEL_BOOTSTRAP": "far:9"}).exit_code == 0
    assert taken()[1].bootstrap_given == "far:9"


def test_who_named_the_broker_is_known_also_if_both_name_the_same(call):
    for arguments, named in (((), None), (("-b", "far:9"), "far:9"), (("-b", "near:1"), "near:1")):
        assert call("copy", "orders", *arguments, env={"RUNNEL_BOOTSTRAP": "far:9"}).exit_code == 0
        assert TAKEN[-1][1].bootstrap_flag == named


@pytest.mark.parametrize("name", ["orders.yaml", "./orders.yml", "missing.yaml"])
def test_a_yaml_file_is_a_pipeline(call, name):
    assert call(name, "--quiet").exit_code == 0
    assert (taken()[0], taken()[2], taken()[1].is_quiet) == ("file", name, True)


def test_any_file_that_exists_is_a_pipeline_unless_a_job_has_its_name(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pipeline").touch()
    Path("copy").touch()
    assert call("pipeline").exit_code == 0
    assert taken()[::2] == ("file", "pipeline")
    assert call("copy", "orders").exit_code == 0
    assert TAKEN[-1][::2] == ("copy", "orders to nowhere")


@pytest.mark.parametrize(
    "arguments",
    [["copi", "orders"], ["--once", "orders.yaml"], ["copy", "o", "--set", "x"], ["a.yaml", "--once"]],
)
def test_wrong_calls(call, arguments):
    assert call(*arguments).exit_code == 2
    assert TAKEN == []


class Colour(Enum):
    RED = "red"


@dataclass
class Inner:
    where: Path
    raw: bytes


@dataclass
class Outcome:
    inner: list[Inner]
    when: datetime
    colour: Colour
    counts: dict[int, float | None]


def test_an_outcome_as_json():
    outcome = Outcome([Inner(Path("/a"), b"\xffx")], datetime(2026, 1, 2, tzinfo=UTC), Colour.RED, {1: None})
    assert as_document(outcome) == {
        "inner": [{"where": "/a", "raw": "\\xffx"}],
        "when": "2026-01-02T00:00:00+00:00",
        "colour": "red",
        "counts": {"1": None},
    }


NO_EXTRA = """
import sys
sys.modules["pyspark"] = None
from runnel.server.cli.pipeline import app as pipeline
from runnel.server.cli.pipeline.options import JobOptions, job
from runnel.server.cli.pipeline.running import run_job

@job(streams=False)
def probe(options: JobOptions) -> None:
    run_job("probe", options, lambda session, progress: 1, show=print)

pipeline.run.command("probe")(probe)
from runnel.server.cli import main
main(["pipeline", "run", "probe", "--quiet"])
"""


def test_without_the_extra_it_says_how_to_get_it():
    ended = subprocess.run([sys.executable, "-c", NO_EXTRA], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("error: pipelines run on Spark: pip install 'runnel[spark]'")
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "arguments", [["--help"], ["pipeline", "--help"], ["pipeline", "run", "--help"], ["version"]]
)
def test_spark_is_not_loaded_before_it_is_needed(arguments):
    program = (
        "import sys, contextlib\n"
        "from runnel.server.cli import main\n"
        f"with contextlib.suppress(SystemExit): main({arguments!r})\n"
        "heavy = {'pyspark', 'pyarrow', 'pandas', 'numpy', 'pyiceberg', 'fastavro'} & set(sys.modules)\n"
        "print(*heavy, file=sys.stderr)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stderr == "\n"
