"""`runnel pipeline run archive` and `restore`, as they are typed."""

import json
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from runnel.server.cli.pipeline.app import app

pytestmark = pytest.mark.timeout(300)  # the first test of a process waits for Spark to start

RUNNER = CliRunner()


@pytest.fixture
def shared_session(spark, monkeypatch):
    """The session of the tests in the place of one that takes many seconds to start."""

    @contextmanager
    def session(*arguments, **named):
        yield spark

    monkeypatch.setattr("runnel.pipelines.session.spark_session", session)


def invoke(*arguments: str):
    return RUNNER.invoke(app, ["run", *arguments], catch_exceptions=False)


def test_a_topic_is_archived_and_restored(shared_session, runnel, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with runnel.client() as client:
        client.create_topic("orders", partitions=2)
        for number in range(4):
            client.send("orders", b"%d" % number, partition=number % 2)
    broker = ["-b", runnel.bootstrap_servers]
    archived = json.loads(invoke("archive", "orders", "--json", *broker).stdout)
    assert [topic["rows"] for topic in archived["topics"]] == [4]
    listed = json.loads(invoke("restore", "-w", "warehouse", "--json").stdout)
    assert listed == [{"topic": "orders", "table": "archive.orders"}]
    result = invoke("restore", "orders", "-w", "warehouse", "--to", "again", "--until-offset", "1:1", *broker)
    assert result.exit_code == 0
    assert "RECORDS RESTORED" in result.stdout
    with runnel.client() as client:
        assert sorted(message.value for message in client.read("again", committed_only=True)) == [
            b"0",
            b"1",
            b"2",
        ]


def test_what_is_in_a_folder_is_listed(runnel):
    with runnel.client() as client:
        client.create_topic("orders", partitions=2)
    runnel.stop()
    result = invoke("restore", "--from", runnel.data_dir)
    assert result.exit_code == 0
    assert any(line.split()[:2] == ["orders", "2"] for line in result.stdout.splitlines())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["restore", "orders"], "specify the source"),
        (["restore", "orders", "-w", "w", "--from", "f"], "specify the source"),
        (["restore", "orders", "-w", "w", "--until-offset", "7"], "0:1500"),
        (["archive"], "specify the topics"),
        (["archive", "orders", "--pattern", "x"], "specify the topics"),
    ],
)
def test_mistakes_are_usage_errors(arguments, words):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.output.replace("│", " ").split())
