"""Style rules beyond the linters: sizes, reminders left behind, names, words to avoid, imports of tests."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FUNCTION_LINES_MAX = 50
FILE_LINES_MAX = 600
LINE_CHARACTERS_MAX = 110

# What is longer than the rules allow, and by how much. This list only ever shrinks: an entry that has become
# larger than its file, or that is no longer needed, is itself a finding.
LONG_FILES: dict[str, int] = {}
LONG_FUNCTIONS: dict[str, int] = {}

# A reminder is work that will not be done. Split so that this file passes its own rule.
REMINDER = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")
# Words that documentation of this field does not use. Split so that this file passes its own rule.
ODD_WORDS = ["an" + "ew", "every" + "body", "no" + "body", "some" + "body", "there" + "by", "who" + "ever"]
ODD_WORD = re.compile(r"\b(" + "|".join([*ODD_WORDS, "whom" + "ever"]) + r")\b", re.IGNORECASE)
# Pages that quote the names of other projects' tests.
WORDS_UNCHECKED = ("docs/CONFORMANCE.md",)
TESTS_IMPORT = re.compile(r"\s*(from|import) tests\b")
HOLLOW_NAME = re.compile(r"(Manager|Helper|Utils?|Impl)$|^(Manager|Helper|Utils?)")
HOLLOW_FILE = re.compile(r"(^|_)(manager|helpers?|utils?|impl|misc|common)$")


def tidy_file(path: str, text: str) -> Iterator[str]:
    """Everything in one Python file that breaks a rule, as `path:line: what is wrong`."""
    lines = text.splitlines()
    yield from _too_long(path, len(lines), FILE_LINES_MAX, LONG_FILES, f"{path}:1: file")
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_CHARACTERS_MAX:
            yield f"{path}:{number}: line has {len(line)} characters, at most {LINE_CHARACTERS_MAX}"
        if found := REMINDER.search(line):
            yield f"{path}:{number}: {found[0]} left behind: finish it or file it"
        if path.startswith(("src/", "tools/")) and TESTS_IMPORT.match(line):
            yield f"{path}:{number}: imports tests: move what both need to tools/"
    yield from odd_words(path, lines)
    if HOLLOW_FILE.search(Path(path).stem):
        yield f"{path}:1: a file named {Path(path).stem} does not describe its contents"
    tree = ast.parse(text, path)
    if path.startswith("src/") and text.strip() and ast.get_docstring(tree) is None:
        yield f"{path}:1: the module has no docstring"
    yield from _tidy_definitions(path, tree)


def odd_words(path: str, lines: list[str]) -> Iterator[str]:
    """Words to avoid in a source file or a page of the documentation."""
    if path.startswith(WORDS_UNCHECKED):
        return
    for number, line in enumerate(lines, 1):
        if found := ODD_WORD.search(line):
            yield f"{path}:{number}: {found[0]}: use the term of the field, or name the actor"


def _tidy_definitions(path: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and HOLLOW_NAME.search(node.name):
            yield f"{path}:{node.lineno}: class {node.name}: name it by the noun of the domain"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            where = f"{path}:{node.lineno}: function {node.name}"
            yield from _too_long(f"{path}::{node.name}", length, FUNCTION_LINES_MAX, LONG_FUNCTIONS, where)


def _too_long(key: str, length: int, limit: int, exceptions: dict[str, int], where: str) -> Iterator[str]:
    allowed = exceptions.get(key, limit)
    if length > allowed:
        yield f"{where} has {length} lines, at most {allowed}"
    elif key in exceptions and length < allowed:
        advice = f"lower it to {length}" if length > limit else "remove it"
        yield f"{where} has {length} lines, its exception in tools/tidy.py allows {allowed}: {advice}"


def missing_exceptions(paths: list[str]) -> Iterator[str]:
    """Exceptions for files that no longer exist."""
    for key in [*LONG_FILES, *LONG_FUNCTIONS]:
        if key.partition("::")[0] not in paths:
            yield f"tools/tidy.py: the exception for {key} refers to a file that does not exist: remove it"


def tracked_files(root: Path, pattern: str = "*.py") -> list[str]:
    """The project's files of a kind: tracked, or new and not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return [path for path in sorted(set(listed.stdout.split())) if (root / path).exists()]


def findings(root: Path) -> list[str]:
    """Every broken rule in the project."""
    paths = tracked_files(root)
    found = [finding for path in paths for finding in tidy_file(path, (root / path).read_text("utf-8"))]
    for page in tracked_files(root, "*.md"):
        found += odd_words(page, (root / page).read_text("utf-8").splitlines())
    return found + list(missing_exceptions(paths))


def main() -> int:
    found = findings(Path(__file__).resolve().parent.parent)
    print("\n".join(found) if found else "tidy: nothing to do")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
