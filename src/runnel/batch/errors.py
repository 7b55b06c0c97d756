"""How this room says no.

CorruptBatch                the bytes are not a whole, undamaged record batch (CORRUPT_MESSAGE)
└── BatchInflatesTooFar     the compressed records unfold beyond the allowed size (MESSAGE_TOO_LARGE)

Nothing else escapes when the bytes of a stranger are read.
"""

from runnel.model.errors import ErrorCode, Refusal


class CorruptBatch(Refusal):
    """The bytes are not a whole, undamaged record batch."""

    error = ErrorCode.CORRUPT_MESSAGE


class BatchInflatesTooFar(CorruptBatch):
    """The compressed records unfold beyond the allowed size."""

    error = ErrorCode.MESSAGE_TOO_LARGE
