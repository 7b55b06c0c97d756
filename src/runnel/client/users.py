"""Users with SCRAM credentials."""

import os
from dataclasses import dataclass

from runnel.client.cluster import Cluster
from runnel.client.errors import check
from runnel.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from runnel.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from runnel.security.scram import SCRAM_HASHES, SCRAM_MECHANISM_CODES, new_salt, salted_password

_MECHANISMS = {code: mechanism for mechanism, code in SCRAM_MECHANISM_CODES.items()}


@dataclass(frozen=True, slots=True)
class UserView:
    """A user, and the iterations of its credential by mechanism."""

    name: str
    mechanisms: dict[str, int]


class Users:
    """Adds, lists and removes users. Passwords are salted and hashed here: no broker receives them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def known(self) -> list[UserView]:
        """All users with SCRAM credentials."""
        response = await self._cluster.send_to_any(
            DescribeUserScramCredentialsRequest(None), DescribeUserScramCredentialsResponse
        )
        check(response.error_code, "describing users", response.error_message)
        return [
            UserView(
                result.user,
                {_MECHANISMS[info.mechanism]: info.iterations for info in result.credential_infos},
            )
            for result in sorted(response.results, key=lambda result: result.user)
        ]

    async def add(self, name: str, password: str, mechanism: str, iterations: int) -> None:
        """Add a user, or change its password."""
        salt = new_salt(os.urandom(32))
        upsertion = ScramCredentialUpsertion(
            name,
            SCRAM_MECHANISM_CODES[mechanism],
            iterations,
            salt,
            salted_password(SCRAM_HASHES[mechanism], password, salt, iterations),
        )
        await self._alter(AlterUserScramCredentialsRequest(upsertions=[upsertion]), f"adding user {name}")

    async def remove(self, name: str, mechanism: str) -> None:
        """Remove the credential of a user for one mechanism."""
        deletion = ScramCredentialDeletion(name, SCRAM_MECHANISM_CODES[mechanism])
        await self._alter(AlterUserScramCredentialsRequest(deletions=[deletion]), f"removing user {name}")

    async def _alter(self, request: AlterUserScramCredentialsRequest, operation: str) -> None:
        response = await self._cluster.send_to_controller(request, AlterUserScramCredentialsResponse)
        for result in response.results:
            check(result.error_code, operation, result.error_message)
