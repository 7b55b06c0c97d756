"""The program in the README does what it says."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_first_program_runs() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "b'two coffees'\n", done.stderr


def test_every_page_it_points_to_exists() -> None:
    pages = re.findall(r"\]\(((?!http)[^)#]+)", README.read_text())
    assert pages
    assert [page for page in pages if not (README.parent / page).exists()] == []
