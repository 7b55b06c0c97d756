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
    return _elements_in(type(message))(message, 0) > SLICE_ELEMENTS


@cache
def _elements_in(struct: type[Struct]) -> Callable[[Any, int], int]:
    """A count of the elements in a struct's arrays, added to one; beyond the limit it is not continued."""
    arrays = [
        (each.name, each.type.element.struct if isinstance(each.type.element, StructOf) else None)
        for each in fields_of(struct)
        if isinstance(each.type, ArrayOf)
    ]

    def counted(element: Any, count: int) -> int:
        for name, inner in arrays:
            elements = getattr(element, name) or ()
            count += len(elements)
            if count > SLICE_ELEMENTS:
                break
            if inner is not None and _has_arrays(inner):
                count_inner = _elements_in(inner)
                for each in elements:
                    count = count_inner(each, count)
        return count

    return counted


@cache
def _has_arrays(struct: type[Struct]) -> bool:
    return any(isinstance(each.type, ArrayOf) for each in fields_of(struct))
