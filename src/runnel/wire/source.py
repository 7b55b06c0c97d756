"""Builder of Python source: lines, unique names, and the objects that the source refers to."""

import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct as Layout
from typing import Any


class Source:
    """The text of one function, and the global names it may use."""

    def __init__(self, **scope: Any) -> None:
        self.lines: list[str] = []
        self.scope: dict[str, Any] = scope
        self._depth = 0
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """An indented block under `head`."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, stem: str) -> str:
        """A unique local name derived from `stem`."""
        self._names += 1
        return f"{stem}_{self._names}"

    def use(self, name: str, value: Any) -> str:
        """Make an object available to the source under (nearly) this name."""
        while name in self.scope and self.scope[name] is not value:
            name += "_"
        self.scope[name] = value
        return name

    def layout(self, verb: str, codes: str) -> str:
        """A pre-bound method of the struct layout with these codes."""
        name = f"{verb}_{codes.replace('?', 't')}"
        if name not in self.scope:
            self.scope[name] = getattr(Layout(">" + codes), verb)
        return name

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def compile(self, function: str, title: str) -> Any:
        """Execute the source and return one of its functions; tracebacks show its lines."""
        filename = f"<runnel.wire {title}>"
        text = self.text
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), self.scope)
        return self.scope[function]
