"""Static settings from file, environment and flags."""

from pathlib import Path

import pytest

from runnel.server.layers import BadSettings, static_settings


def test_precedence_of_sources(tmp_path: Path) -> None:
    file = tmp_path / "runnel.toml"
    file.write_text(
        "num.partitions = 4\nauto.create.topics.enable = false\n"
        "[log]\nsegment.bytes = 7\nretention.hours = 1\n"
    )
    settings = static_settings(
        file,
        {"RUNNEL_SET_LOG_RETENTION_HOURS": "2", "RUNNEL_SET_NUM_PARTITIONS": "5", "HOME": "/"},
        ["num.partitions=6"],
    )
    assert settings == {
        "num.partitions": "6",
        "log.retention.hours": "2",
        "auto.create.topics.enable": "false",
        "log.segment.bytes": "7",
    }


def test_lists_are_joined_by_commas_and_values_may_contain_equals_signs(tmp_path: Path) -> None:
    file = tmp_path / "runnel.toml"
    file.write_text('listeners = ["A://x:1", "B://y:2"]\n')
    assert static_settings(file, {}, ["a.b = c=d"]) == {"listeners": "A://x:1,B://y:2", "a.b": "c=d"}


@pytest.mark.parametrize("assignment", ["nonsense", "=1", " = 1"])
def test_flag_without_a_name_is_rejected(assignment: str) -> None:
    with pytest.raises(BadSettings, match="key=value"):
        static_settings(None, {}, [assignment])


def test_error_names_an_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"absent\.toml"):
        static_settings(tmp_path / "absent.toml", {}, [])
    broken = tmp_path / "broken.toml"
    broken.write_text("a = = 1")
    with pytest.raises(BadSettings, match=r"broken\.toml is not valid TOML"):
        static_settings(broken, {}, [])
