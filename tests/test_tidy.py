"""Each of the style rules can fail."""

import pytest

from tools import tidy


@pytest.mark.parametrize(
    ("path", "text", "complaint"),
    [
        ("src/a.py", '"""A."""\n' + "x = 1\n" * 600, "file has 601 lines"),
        ("src/a.py", '"""A."""\ndef f():\n' + "    x = 1\n" * 50, "function f has 51 lines"),
        ("src/a.py", '"""A."""\nx = "' + "y" * 110 + '"\n', "line has 116 characters"),
        ("tests/a.py", "# TO" + "DO later\n", "left behind"),
        ("tests/a.py", "class GroupManager:\n    pass\n", "class GroupManager"),
        ("tests/a.py", "class UtilsBox:\n    pass\n", "class UtilsBox"),
        ("src/string_utils.py", '"""A."""\n', "does not describe its contents"),
        ("src/a.py", "x = 1\n", "has no docstring"),
        ("tests/a.py", "# Who" + "ever waits is woken.\n", "use the term of the field"),
        ("tools/a.py", "from tests.world import World\n", "imports tests"),
    ],
)
def test_each_rule_can_fail(path: str, text: str, complaint: str) -> None:
    assert [finding for finding in tidy.tidy_file(path, text) if complaint in finding]


def test_words_are_not_checked_in_exempt_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidy, "WORDS_UNCHECKED", ("src/quoted/",))
    assert list(tidy.odd_words("src/quoted/a.py", ["no" + "body"])) == []


def test_valid_file_has_no_findings() -> None:
    assert list(tidy.tidy_file("src/a.py", '"""A."""\n\n\ndef f() -> int:\n    return 1\n')) == []


def test_exceptions_only_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tidy.LONG_FILES, "src/a.py", 700)
    text = '"""A."""\n' + "x = 1\n" * 649
    assert list(tidy.tidy_file("src/a.py", text)) == [
        "src/a.py:1: file has 650 lines, its exception in tools/tidy.py allows 700: lower it to 650"
    ]
    assert "remove it" in next(tidy.tidy_file("src/a.py", '"""A."""\n'))
    assert "a file that does not exist" in next(tidy.missing_exceptions(["src/b.py"]))
