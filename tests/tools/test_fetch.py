"""Downloads are complete or absent, are fetched once, and a missing program is named with its purpose."""

import threading
from pathlib import Path

import pytest

from tools.bench import loadgen
from tools.conformance.__main__ import missing_programs
from tools.fetch.cache import cache_folder, cached
from tools.fetch.maven import pom
from tools.fetch.programs import Unavailable, find
from tools.kafka import commands


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_an_interrupted_download_leaves_nothing_behind() -> None:
    def fill(folder: Path) -> None:
        (folder / "half").write_text("of it")
        raise Unavailable("the network is down")

    with pytest.raises(Unavailable):
        cached("jars", fill)
    assert [path.name for path in cache_folder().iterdir()] == [".jars.lock"]
    done = cached("jars", lambda folder: (folder / "whole").touch())
    assert [path.name for path in done.iterdir()] == ["whole"]


def test_two_that_ask_at_once_fetch_once() -> None:
    fetched: list[Path] = []
    has_begun = threading.Event()
    may_end = threading.Event()

    def fill(folder: Path) -> None:
        fetched.append(folder)
        has_begun.set()
        assert may_end.wait(30)

    askers = [threading.Thread(target=cached, args=("jars", fill)) for _ in range(2)]
    askers[0].start()
    assert has_begun.wait(30)
    askers[1].start()
    may_end.set()
    for asker in askers:
        asker.join()
    assert len(fetched) == 1


def test_a_missing_program_is_named_with_its_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unavailable, match=r"Go \(go\) is not on the PATH; it is needed to dig"):
        find("go", "dig")


def test_conformance_names_every_missing_program(monkeypatch: pytest.MonkeyPatch) -> None:
    commands.kafka_jars.cache_clear()
    monkeypatch.setenv("PATH", "")
    go, java = missing_programs(None)
    assert "Go (go)" in go
    assert "Java (java" in java
    assert missing_programs("franz-go") == [go]
    assert missing_programs("kafka-tools") == [java]


def test_without_maven_the_jars_are_reported_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands.kafka_jars.cache_clear()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(java.parent))
    with pytest.raises(Unavailable, match=r"Maven \(mvn\).*run Apache Kafka"):
        commands.kafka_jars()


def test_a_project_may_leave_out_what_its_artifacts_depend_on() -> None:
    artifact = [("org.example", "thing", "1.2")]
    assert "<artifactId>thing</artifactId><version>1.2</version></dependency>" in pom(artifact, True)
    assert "<exclusions>" in pom(artifact, False)


def test_without_a_compiler_the_load_generator_is_reported_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(Unavailable, match=r"a C compiler \(cc\).*compile the load generator"):
        loadgen.build()
