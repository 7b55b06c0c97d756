"""SCRAM credentials: altered and described. `security/scram_server.py` authenticates with them."""

from runnel.controller.image import MetadataImage
from runnel.controller.result import ControllerResult, duplicates_in
from runnel.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from runnel.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.limits import SCRAM_CHANGES_PER_REQUEST_MAX
from runnel.schemas.metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from runnel.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_HASHES,
    SCRAM_MECHANISM_CODES,
    verifier_of,
)

HASHES = {SCRAM_MECHANISM_CODES[mechanism]: algorithm for mechanism, algorithm in SCRAM_HASHES.items()}
"""The hash function by Kafka's mechanism number."""


def decide_alter_scram_credentials(
    image: MetadataImage, request: AlterUserScramCredentialsRequest
) -> ControllerResult[AlterUserScramCredentialsResponse]:
    """Upsert and delete credentials, at most one change per user."""
    users = [deletion.name for deletion in request.deletions]
    users += [upsertion.name for upsertion in request.upsertions]
    if len(users) > SCRAM_CHANGES_PER_REQUEST_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{len(users)} credentials in one request, the limit is {SCRAM_CHANGES_PER_REQUEST_MAX}",
        )
    duplicates = duplicates_in(users)
    deletions = {deletion.name: deletion for deletion in request.deletions}
    upsertions = {upsertion.name: upsertion for upsertion in request.upsertions}
    outcome = ControllerResult[AlterUserScramCredentialsResponse]([], AlterUserScramCredentialsResponse())
    for user in dict.fromkeys(users):
        result = AlterUserScramCredentialsResult(user, error_message=None)
        try:
            if user in duplicates:
                raise ApiError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            if not user:
                raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
            deletion = deletions.get(user)
            record = _credential(upsertions[user]) if deletion is None else _removal(image, deletion)
            outcome.records.append(record)
        except ApiError as error:
            result.error_code, result.error_message = error.code, str(error)
        outcome.response.results.append(result)
    return outcome


def _removal(image: MetadataImage, deletion: ScramCredentialDeletion) -> RemoveUserScramCredentialRecord:
    _check_mechanism(deletion.mechanism)
    if deletion.mechanism not in image.credentials.get(deletion.name, {}):
        raise ApiError(
            ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        )
    return RemoveUserScramCredentialRecord(deletion.name, deletion.mechanism)


def _credential(upsertion: ScramCredentialUpsertion) -> UserScramCredentialRecord:
    _check_mechanism(upsertion.mechanism)
    if upsertion.iterations < ITERATIONS_MIN:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if upsertion.iterations > ITERATIONS_MAX:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not len(upsertion.salt) or not len(upsertion.salted_password):
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salt and salted password must not be empty")
    # RFC 5802: the server stores the keys that verify a proof, not those that create one.
    salt, salted_password = bytes(upsertion.salt), bytes(upsertion.salted_password)
    verifier = verifier_of(HASHES[upsertion.mechanism], salted_password, salt, upsertion.iterations)
    return UserScramCredentialRecord(
        name=upsertion.name,
        mechanism=upsertion.mechanism,
        salt=salt,
        stored_key=verifier.stored_key,
        server_key=verifier.server_key,
        iterations=upsertion.iterations,
    )


def _check_mechanism(mechanism: int) -> None:
    if mechanism not in HASHES:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


def describe_scram_credentials(
    image: MetadataImage, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """The mechanisms and iterations of users; no user names mean all users."""
    names = [user.name for user in request.users or ()] or list(image.credentials)
    duplicates = duplicates_in(names)
    response = DescribeUserScramCredentialsResponse(error_message=None)
    for name in dict.fromkeys(names):
        result = DescribeUserScramCredentialsResult(name, error_message=None)
        if name in duplicates:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE.code
            result.error_message = (
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            )
        elif name not in image.credentials:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND.code
            result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
        else:
            result.credential_infos = [
                CredentialInfo(mechanism, credential.iterations)
                for mechanism, credential in sorted(image.credentials[name].items())
            ]
        response.results.append(result)
    return response
