"""Programs that the machine may lack: found on the PATH, or reported with what they are needed for."""

import os
import shutil
from collections.abc import Callable, Iterable

NAMES = {
    "java": "Java (java, version 17 or newer)",
    "mvn": "Maven (mvn)",
    "go": "Go (go)",
    "node": "Node.js (node)",
    "npm": "Node.js's npm (npm)",
    "cc": "a C compiler (cc)",
}


class Unavailable(Exception):
    """Something that the machine lacks, and what it is needed for."""


def missing(needs: Iterable[Callable[[], object]]) -> list[str]:
    """The reasons of those needs that the machine cannot meet."""
    reasons = []
    for need in needs:
        try:
            need()
        except Unavailable as reason:
            reasons.append(str(reason))
    return reasons


def find(program: str, purpose: str) -> str:
    """The path of a program; raises Unavailable with the purpose if it is not installed."""
    named = os.environ.get("CC") if program == "cc" else None
    found = shutil.which(named or program)
    if found is None:
        raise Unavailable(f"{NAMES.get(program, program)} is not on the PATH; it is needed to {purpose}")
    return found
