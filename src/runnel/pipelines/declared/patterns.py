"""Which topics a pattern means: never dead letters, or malformed values would come round for ever."""

import re

from runnel.pipelines.declared.declaration import Declaration, Source

DEAD_LETTERS = ".dead-letters"
"""What a dead-letter topic's name ends with, after that of the topic."""
REDRIVEN = ".redriven"
"""What follows that where letters were sent back: which of them were."""
_LETTERS = re.escape(DEAD_LETTERS)
_MARKS = re.escape(REDRIVEN)
_FLAGS = re.compile(r"(?:\(\?[aiLmsux]+\))*")


def read_pattern(source: Source, declaration: Declaration) -> str | None:
    """The pattern that the source's reader gets, which looks for new topics by it as well."""
    if source.pattern is None:
        return None
    return without_dead_letters(source.pattern, dead_letter_names(declaration))


def dead_letter_names(declaration: Declaration) -> set[str]:
    """The dead-letter topics that the file names."""
    return {source.dead_letter_topic for source in declaration.sources.values() if source.dead_letter_topic}


def without_dead_letters(pattern: str, names: set[str]) -> str:
    """A pattern for what this one matches, but for dead letters and the topics of these names."""
    flags = _FLAGS.match(pattern)
    # Flags that are meant for the whole of a pattern are taken at its very beginning only.
    before = flags[0] if flags else ""
    rest = pattern[len(before) :]
    # A comment, which may end a verbose pattern, ends with its line.
    end = "\n" if "x" in before else ""
    left_out = "|".join([rf".*{_LETTERS}(?:{_MARKS})?", *map(re.escape, sorted(names))])
    # What is left out is left out as it is written, whatever the flags of the pattern are.
    return rf"{before}(?!(?-imsx:{left_out})\Z)(?:{rest}{end})"


def reads(source: Source, topic: str, declaration: Declaration) -> bool:
    """Would the source read a topic of this name?"""
    pattern = read_pattern(source, declaration)
    if pattern is None:
        return topic in source.topics
    return re.fullmatch(pattern, topic) is not None
