"""Credentials are decided in one pass, and not too many at once."""

from collections.abc import Iterator
from typing import SupportsIndex, overload

import pytest

from runnel.controller.image import MetadataImage
from runnel.controller.scram import decide_alter_scram_credentials
from runnel.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.limits import ERROR_MESSAGE_CHARACTERS_MAX, SCRAM_CHANGES_PER_REQUEST_MAX


class Counted(list[ScramCredentialDeletion]):
    """A list that counts how many elements were taken from it."""

    taken = 0

    def __iter__(self) -> Iterator[ScramCredentialDeletion]:
        for element in super().__iter__():
            self.taken += 1
            yield element

    @overload
    def __getitem__(self, index: SupportsIndex) -> ScramCredentialDeletion: ...
    @overload
    def __getitem__(self, index: slice) -> list[ScramCredentialDeletion]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> object:
        self.taken += 1
        return super().__getitem__(index)


def test_the_work_grows_with_the_request_and_no_faster() -> None:
    count = SCRAM_CHANGES_PER_REQUEST_MAX
    deletions = Counted(ScramCredentialDeletion(f"user-{number}", 1) for number in range(count))
    result = decide_alter_scram_credentials(MetadataImage(), AlterUserScramCredentialsRequest(deletions))
    assert {one.error_code for one in result.response.results} == {ErrorCode.RESOURCE_NOT_FOUND.code}
    assert deletions.taken <= 4 * count


def test_too_many_credentials_at_once_are_refused() -> None:
    upsertion = ScramCredentialUpsertion("user", 1, 4096, b"salt", b"password")
    request = AlterUserScramCredentialsRequest([], [upsertion] * (SCRAM_CHANGES_PER_REQUEST_MAX + 1))
    with pytest.raises(ApiError, match="the limit is"):
        decide_alter_scram_credentials(MetadataImage(), request)


def test_an_error_message_quotes_no_more_than_it_must() -> None:
    assert len(str(ApiError(ErrorCode.INVALID_REQUEST, "x" * 100_000))) == ERROR_MESSAGE_CHARACTERS_MAX
