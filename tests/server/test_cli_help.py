"""Help texts: complete, with examples, and fast to show."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from rich.text import Text

from runnel.server.cli.app import app


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


ALL = dict(commands(typer.main.get_command(app)))


COMMANDS = {
    "serve",
    "demo",
    "gateway",
    "top",
    "cluster up",
    "cluster status",
    "cluster drain",
    "cluster elect",
    "cluster rebalance",
    "cluster add-voter",
    "cluster remove-voter",
    "topic list",
    "topic describe",
    "topic create",
    "topic alter",
    "topic delete",
    "group list",
    "group describe",
    "group reset-offsets",
    "group delete",
    "group delete-offsets",
    "txn list",
    "txn describe",
    "txn find-hanging",
    "txn abort",
    "acl add",
    "acl list",
    "acl remove",
    "role grant",
    "role revoke",
    "role list",
    "schema check",
    "schema diff",
    "schema list",
    "schema register",
    "schema show",
    "security check",
    "token create",
    "token describe",
    "token renew",
    "token expire",
    "config describe",
    "config alter",
    "quota set",
    "quota list",
    "quota remove",
    "tenant create",
    "tenant list",
    "tenant describe",
    "tenant delete",
    "produce",
    "consume",
    "storage random-uuid",
    "storage info",
    "storage format",
    "storage random-key",
    "storage rotate-key",
    "user add",
    "user list",
    "user remove",
    "log dump",
    "pipeline validate",
    "pipeline init",
    "pipeline run file",
    "pipeline run archive",
    "pipeline run restore",
    "pipeline run audit",
    "pipeline run insights",
    "pipeline run dead-letters",
    "alert list",
    "alert rules",
    "alert test",
    "alert run",
    "alert export-rules",
    "alert export-dashboard",
    "alert silence add",
    "alert silence list",
    "alert silence expire",
    "bench",
    "version",
}


def test_all_commands_are_listed():
    assert {" ".join(path) for path in ALL} == COMMANDS


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_has_a_summary_an_example_and_documented_options(path, run):
    command = ALL[path]
    assert command.help.strip().splitlines()[0].endswith(".")
    assert f"Example: runnel {' '.join(path)}" in command.help.replace("seq 1000 | ", "")
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{' '.join(path)} {parameter.name} has no help"
    assert run.ok(*path, "--help").out


def everything(group: Any) -> Iterator[Any]:
    yield group
    for command in getattr(group, "commands", {}).values():
        yield from everything(command)


def test_no_part_of_a_help_text_is_taken_for_a_style():
    for command in everything(typer.main.get_command(app)):
        texts = [command.help, command.short_help, command.epilog]
        for parameter in command.params:
            texts += [getattr(parameter, "help", None), parameter.metavar, str(parameter.default)]
        for text in filter(None, texts):
            meant = text.replace("[bold]", "").replace("[/bold]", "").replace("\\[", "[")
            assert Text.from_markup(text).plain == meant


def test_brackets_are_shown_in_help_and_in_errors(run):
    assert "'SCRAM-SHA-256=[name=alice,password=tea]'" in run.ok("storage", "format", "--help").out
    ended = run("topic", "alter", "x", "--set", "[bold]")
    assert ended.code and "[bold]" in ended.err


def test_help_imports_nothing_of_the_broker():
    program = (
        "import sys, contextlib\n"
        "from runnel.server.cli import main\n"
        "with contextlib.suppress(SystemExit): main(['--help'])\n"
        "loaded = [name for name in sys.modules if name.startswith(('runnel', 'asyncio'))]\n"
        "print(*loaded, file=sys.stderr)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(ended.stderr.split())
    assert {name for name in loaded if not name.startswith("runnel.server.cli")} == {
        "runnel",
        "runnel.server",
    }


def test_broken_pipe_is_not_an_error(run, name):
    run.ok("topic", "create", name)
    run.ok("produce", name, stdin="x\n" * 50_000)
    command = f"{sys.executable} -m runnel.server.cli consume {name} -b {run.address} | head -1"
    ended = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "x\n", "")


def test_version(run):
    assert set(run.ok("version", "--json").json) == {"runnel", "python", "platform"}
    assert run.ok("version").out.startswith("runnel ")
    assert run.ok("--version").out == run.ok("version").out
