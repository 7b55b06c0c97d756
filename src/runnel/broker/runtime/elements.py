"""How many elements a message has: those with many are served in steps, or by a thread."""

from collections.abc import Callable
from functools import cache
from typing import Any

from runnel.model.limits import SLICE_ELEMENTS
from runnel.wire import Request, Response, fields_of
from runnel.wire.primitives import ArrayOf, StructOf
from runnel.wire.struct import Struct


def has_many_elements(message: Request | Response) -> bool:
    """Whether the arrays of a message, and those within them, have too many elements for one step."""
    count = 0
    for each in fields_of(type(message)):
        if isinstance(each.type, ArrayOf):
            elements = getattr(message, each.name) or ()
            count += len(elements)
            if count > SLICE_ELEMENTS:
                return True
            if isinstance(each.type.element, StructOf):
                count += sum(map(_elements_in(each.type.element.struct), elements))
    return count > SLICE_ELEMENTS


@cache
def _elements_in(struct: type[Struct]) -> Callable[[Any], int]:
    """How many elements the arrays of a struct have."""
    names = [each.name for each in fields_of(struct) if isinstance(each.type, ArrayOf)]
    return lambda element: sum(len(getattr(element, name) or ()) for name in names)
