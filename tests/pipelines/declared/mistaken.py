"""Files with errors, each with the expected findings in the lines at its end that begin with `#=`.

`pytest --rewrite` rewrites these lines; the difference is then reviewed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runnel.pipelines.declared.findings import Findings

SIGN = "#= "


@dataclass(frozen=True)
class MistakenFile:
    """One such file."""

    path: Path

    @property
    def text(self) -> str:
        """The pipeline itself."""
        lines = self.path.read_text("utf-8").splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith(SIGN.rstrip()))

    @property
    def written(self) -> list[str]:
        """The expected findings."""
        lines = self.path.read_text("utf-8").splitlines()
        return [line.removeprefix(SIGN) for line in lines if line.startswith(SIGN)]

    def check(self, explain: Callable[[str, Path], Findings], *, rewrite: bool) -> None:
        """Compare the findings with the expected ones."""
        folder = self.path.parent
        findings = explain(self.text, folder)
        said = [finding.line(self.path.name).replace(f"{folder}/", "") for finding in findings]
        if rewrite:
            body = self.text if self.text.endswith("\n") or not self.text else f"{self.text}\n"
            self.path.write_text(body + "".join(f"{SIGN}{line}\n" for line in said), "utf-8")
        else:
            assert said == self.written, f"{self.path.name} is reported differently"
            assert said, f"{self.path.name} has no mistake"


def mistaken_files(folder: str) -> list[MistakenFile]:
    """All files of a folder beside this one."""
    found = [MistakenFile(path) for path in sorted((Path(__file__).parent / folder).glob("*.yaml"))]
    assert found, f"there are no files in {folder}"
    return found
