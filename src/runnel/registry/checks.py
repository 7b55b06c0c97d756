"""Checks of compatibility, apart from the decisions that need them: they may take long.

A decision looks its checks up in `Verdicts`; what is missing there is raised as `Unchecked`, is carried out
elsewhere, and the request is decided again.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from runnel.registry.format import Incompatibility, InvalidSchema, ReferencedSchema
from runnel.registry.formats import STORED_FORMATS

VERDICTS_MAX = 4000
FINDING_CHARACTERS_MAX = 1000
FINDINGS_CHARACTERS_MAX = 20_000
"""Findings name fields, whose names may be of any length; they are kept, and are part of a response."""

LARGE_CHARACTERS = 4096

NOT_COMPARABLE = "NOT_COMPARABLE"
SCHEMA_TYPE_CHANGED = "SCHEMA_TYPE_CHANGED"


@dataclass(frozen=True)
class Side:
    """A schema with all that it refers to."""

    type: str
    text: str
    references: tuple[ReferencedSchema, ...] = ()

    @cached_property
    def digest(self) -> bytes:
        """Differs for all that differ."""
        parts = [self.type, self.text]
        for reference in self.references:
            parts += [reference.name, reference.text]
        found = hashlib.sha256()
        for part in parts:
            found.update(len(part).to_bytes(8, "big"))
            found.update(_digest(part) if len(part) > LARGE_CHARACTERS else _data(part))
        return found.digest()


def _data(text: str) -> bytes:
    # Escapes of JSON may be halves of surrogate pairs.
    return text.encode(errors="surrogatepass")


@lru_cache(maxsize=100)
def _digest(text: str) -> bytes:
    """Of a large text: a thousand versions of a subject may refer to the same ones."""
    return hashlib.sha256(_data(text)).digest()


@dataclass(frozen=True, slots=True)
class Check:
    """Can data of the writer be read with the reader?"""

    reader: Side
    writer: Side

    @property
    def key(self) -> bytes:
        return self.reader.digest + self.writer.digest

    def run(self) -> list[Incompatibility]:
        """Carry it out."""
        if self.reader.type != self.writer.type:
            message = f"the type changes from {self.writer.type} to {self.reader.type}"
            return [Incompatibility(SCHEMA_TYPE_CHANGED, "/", message)]
        try:
            reader, writer = (
                STORED_FORMATS[side.type].parse(side.text, side.references)
                for side in (self.reader, self.writer)
            )
            return _shortened(reader.incompatibilities(writer))
        except InvalidSchema as error:
            return _shortened([not_comparable(str(error))])


def _shortened(findings: list[Incompatibility]) -> list[Incompatibility]:
    found, characters = [], 0
    for one in findings:
        path, message = one.path[:FINDING_CHARACTERS_MAX], one.message[:FINDING_CHARACTERS_MAX]
        characters += len(path) + len(message)
        if characters > FINDINGS_CHARACTERS_MAX:
            break
        found.append(Incompatibility(one.kind, path, message))
    return found


def not_comparable(reason: str) -> Incompatibility:
    """The finding of a check that could not be carried out."""
    return Incompatibility(NOT_COMPARABLE, "/", f"the schemas cannot be compared: {reason}")


class Unchecked(Exception):
    """Checks that a decision needs."""

    def __init__(self, checks: Sequence[Check]) -> None:
        super().__init__(f"{len(checks)} checks are to be carried out")
        self.checks = checks


class Verdicts:
    """Findings of checks that were carried out; the most recent ones are kept, without the schemas."""

    def __init__(self) -> None:
        self._findings: OrderedDict[bytes, list[Incompatibility]] = OrderedDict()

    def add(self, check: Check, findings: list[Incompatibility]) -> None:
        """A check was carried out."""
        self._findings[check.key] = findings
        # More than a decision needs must be kept, or it would never be made.
        while len(self._findings) > VERDICTS_MAX:
            self._findings.popitem(last=False)

    def of(self, checks: Iterable[Check]) -> list[list[Incompatibility]]:
        """The findings of checks; raises Unchecked."""
        # Looked up once: another thread may drop what is there now.
        found = [(check, self._findings.get(check.key)) for check in checks]
        missing = [check for check, findings in found if findings is None]
        if missing:
            raise Unchecked(missing)
        return [findings for _, findings in found if findings is not None]


class ImmediateVerdicts(Verdicts):
    """Carries out checks when they are asked for."""

    def of(self, checks: Iterable[Check]) -> list[list[Incompatibility]]:
        return [check.run() for check in checks]
