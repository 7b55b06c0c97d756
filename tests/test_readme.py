"""The example and the links of the README."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_example() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "b'two coffees'\n", done.stderr


def test_linked_pages_exist() -> None:
    pages = re.findall(r"\]\(((?!http)[^)#]+)", README.read_text())
    assert pages
    assert [page for page in pages if not (README.parent / page).exists()] == []
