"""The ACLs that docs/SECURITY.md recommends for programs: applied as written, and compared with their use."""

import argparse
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.cluster.nodes import RUNNEL

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "SECURITY.md"
BLOCK = re.compile(r"^```sh acls\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Permission:
    """One operation that an ACL permits to a principal."""

    principal: str
    operation: str
    kind: str
    pattern: str

    def covers(self, event: Mapping[str, object]) -> bool:
        """Whether it is why the authorizer permitted something, as the audit log has it."""
        name = str(event.get("resource_name"))
        is_prefix = self.pattern.endswith("*")
        return (
            (event.get("outcome"), event.get("principal")) == ("allowed", self.principal)
            and (event.get("operation"), event.get("resource_type")) == (self.operation, self.kind)
            and (name.startswith(self.pattern[:-1]) if is_prefix else name == self.pattern)
        )


def commands() -> dict[str, list[str]]:
    """The commands of the page, `runnel acl add` each: the line and its words without a comment."""
    lines = "".join(BLOCK.findall(PAGE.read_text())).splitlines()
    return {line: words for line in lines if (words := shlex.split(line, comments=True))}


def permissions() -> list[Permission]:
    """What the commands of the page permit, without those with a comment: the run is not their case."""
    parser = argparse.ArgumentParser()
    for argument in ("kind", "pattern"):
        parser.add_argument(argument)
    parser.add_argument("--to")
    parser.add_argument("--allow", action="append")
    found = []
    for line, words in commands().items():
        if "#" in line:
            continue
        given = parser.parse_args(words[3:])
        kind = given.kind.upper().replace("-", "_")
        operations = [operation.upper().replace("-", "_") for operation in given.allow]
        found += [Permission(given.to, operation, kind, given.pattern) for operation in operations]
    return found


def apply(environment: Mapping[str, str]) -> None:
    """Run the commands of the page."""
    for _, *words in commands().values():
        subprocess.run([RUNNEL, *words], env={**os.environ, **environment}, check=True, capture_output=True)


def unused(audit_log: Path, wanted: Iterable[Permission]) -> list[Permission]:
    """The permissions that nothing needed so far."""
    events = [json.loads(line) for line in audit_log.read_text().splitlines()]
    return [permission for permission in wanted if not any(map(permission.covers, events))]
