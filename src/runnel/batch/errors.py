"""Errors in record batches.

CorruptBatch                not a complete, undamaged record batch (CORRUPT_MESSAGE)
└── BatchInflatesTooFar     the records decompress to more than the allowed size (MESSAGE_TOO_LARGE)

No other exception escapes when untrusted bytes are parsed.
"""

from runnel.model.errors import ApiError, ErrorCode


class CorruptBatch(ApiError):
    """The bytes are not a complete, undamaged record batch."""

    error = ErrorCode.CORRUPT_MESSAGE

    def __init__(self, message: str) -> None:
        super().__init__(self.error, message)


class BatchInflatesTooFar(CorruptBatch):
    """The records decompress to more than the allowed size."""

    error = ErrorCode.MESSAGE_TOO_LARGE
