"""Names of subjects and contexts.

A subject of a context is written `:.context:subject`; `:.context:` alone means the context. Without
that prefix, a subject belongs to the default context, which is named `.`.
"""

from runnel.registry.errors import invalid_subject
from runnel.registry.limits import SUBJECT_CHARACTERS_MAX

DEFAULT_CONTEXT = "."
GLOBAL_CONTEXT = ".__GLOBAL"
GLOBAL_SUBJECT = f":{GLOBAL_CONTEXT}:"
ALL_CONTEXTS = ":*:"
_RESERVED = ("__GLOBAL", "__EMPTY")


def context_of(subject: str) -> str:
    """The context of a subject."""
    return split(subject)[0]


def split(subject: str) -> tuple[str, str]:
    """The context of a subject and its name within it."""
    if subject.startswith(":."):
        context, colon, name = subject[1:].partition(":")
        if colon:
            return context, name
    return DEFAULT_CONTEXT, subject


def qualified(context: str, name: str) -> str:
    """A subject of a context; a name that has a context itself keeps it."""
    if context == DEFAULT_CONTEXT or name.startswith(":."):
        return name
    return f":{context}:{name}"


def normalized(subject: str) -> str:
    """The same subject without the prefix of the default context."""
    context, name = split(subject)
    return name if context == DEFAULT_CONTEXT else subject


def context_named(text: str) -> str:
    """A context as a request names it: `.name`, `name`, `:.name:`; raises RegistryError."""
    name = text.removeprefix(":").removesuffix(":")
    context = name if name.startswith(".") else f".{name}"
    if ":" in context or not _is_printable(context):
        raise invalid_subject(text)
    return context


def check_subject(subject: str, *, may_be_context: bool = False) -> str:
    """The subject of a request in its normal form; raises RegistryError if it is not valid."""
    context, name = split(subject)
    is_valid = (
        len(subject) <= SUBJECT_CHARACTERS_MAX
        and _is_printable(subject)
        and name not in _RESERVED
        and (bool(name) or may_be_context)
        and (context != GLOBAL_CONTEXT or (may_be_context and not name))
    )
    if not is_valid:
        raise invalid_subject(subject)
    return normalized(subject)


def _is_printable(text: str) -> bool:
    """Without control characters and halves of surrogate pairs."""
    return not any(ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 for c in text)
