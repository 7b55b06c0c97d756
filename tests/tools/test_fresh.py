"""The environment of a fresh clone: an empty home, no caches, and only the programs it is to see."""

import os
import shutil
from pathlib import Path

import pytest

from tools.fresh import clean_environment


def test_home_and_caches_are_empty_and_nothing_leaks_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", "/elsewhere")
    environment = clean_environment(tmp_path, [])
    assert list(Path(environment["HOME"]).iterdir()) == []
    assert environment["XDG_CACHE_HOME"].startswith(environment["HOME"])
    assert "VIRTUAL_ENV" not in environment
    assert environment["PATH"] == os.environ["PATH"]


def test_hidden_programs_are_missing_and_others_are_not(tmp_path: Path) -> None:
    environment = clean_environment(tmp_path, ["git"])
    assert shutil.which("git", path=environment["PATH"]) is None
    assert shutil.which("make", path=environment["PATH"]) is not None
