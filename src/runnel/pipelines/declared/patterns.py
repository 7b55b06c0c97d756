"""Topic patterns of sources, which exclude dead-letter topics: malformed values would loop."""

import re

from runnel.pipelines.declared.declaration import Declaration, Source

DEAD_LETTERS = ".dead-letters"
"""Suffix of dead-letter topics."""
REDRIVEN = ".redriven"
"""Further suffix of the topics that list redriven letters."""
_LETTERS = re.escape(DEAD_LETTERS)
_MARKS = re.escape(REDRIVEN)
_FLAGS = re.compile(r"(?:\(\?[aiLmsux]+\))*")


def read_pattern(source: Source, declaration: Declaration) -> str | None:
    """The pattern to subscribe to, without dead-letter topics."""
    if source.pattern is None:
        return None
    return without_dead_letters(source.pattern, dead_letter_names(declaration))


def dead_letter_names(declaration: Declaration) -> set[str]:
    """The values of `dead-letter-topic` in the file."""
    return {source.dead_letter_topic for source in declaration.sources.values() if source.dead_letter_topic}


def without_dead_letters(pattern: str, names: set[str]) -> str:
    """The pattern with dead-letter topics and the given names excluded."""
    flags = _FLAGS.match(pattern)
    # Global flags are allowed only at the start of a pattern.
    before = flags[0] if flags else ""
    rest = pattern[len(before) :]
    # A verbose pattern may end in a comment, which extends to the end of the line.
    end = "\n" if "x" in before else ""
    left_out = "|".join([rf".*{_LETTERS}(?:{_MARKS})?", *map(re.escape, sorted(names))])
    # The exclusions are literal, so the flags of the pattern do not apply to them.
    return rf"{before}(?!(?-imsx:{left_out})\Z)(?:{rest}{end})"


def reads(source: Source, topic: str, declaration: Declaration) -> bool:
    """Would the source read a topic of this name?"""
    pattern = read_pattern(source, declaration)
    if pattern is None:
        return topic in source.topics
    return re.fullmatch(pattern, topic) is not None
