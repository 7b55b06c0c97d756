"""A real browser: Debian's chromium, or the one that RUNNEL_CHROMIUM names."""

import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def chromium_path() -> str | None:
    """The program; None if there is none."""
    given = os.environ.get("RUNNEL_CHROMIUM")
    return given or next((found for name in NAMES if (found := shutil.which(name))), None)
