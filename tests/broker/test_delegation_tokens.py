"""Requests about delegation tokens: for others with a permission, and about many of them."""

from typing import Any

from runnel.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from runnel.messages.expire_delegation_token import ExpireDelegationTokenRequest
from runnel.messages.renew_delegation_token import RenewDelegationTokenRequest
from runnel.model.limits import SLICE_ELEMENTS
from runnel.schemas.metadata import DelegationTokenRecord
from runnel.security.scram_server import token_hmac
from tests.broker.authorized import SETTINGS, Caller, prepare

KEY = "the secret of tokens"
TOKEN_SETTINGS = {**SETTINGS, "delegation.token.secret.key": KEY}
LATE_MS = 2**50


def token_record(token_id: str, owner: str) -> DelegationTokenRecord:
    return DelegationTokenRecord(owner, owner, ["User:renewer"], 0, LATE_MS, LATE_MS, token_id)


def test_many_tokens_are_looked_through_in_threads(tell) -> None:
    count = SLICE_ELEMENTS + 1

    async def scenario(world: Any) -> None:
        prepare(world)
        broker = world.broker
        await broker.metadata.submit([token_record(f"t{each}", f"User:{each}") for each in range(count)])
        jobs: list[Any] = []
        run_blocking = broker.disk.run_blocking
        broker.disk.run_blocking = lambda job: jobs.append(job) or run_blocking(job)
        renewer = Caller(world, "renewer")
        for _ in range(3):
            assert (await renewer.ask(RenewDelegationTokenRequest(b"random", -1), 2)).error_code == 62
        assert (await renewer.ask(RenewDelegationTokenRequest(token_hmac(KEY, "t7"), -1), 2)).error_code == 0
        assert (await renewer.ask(ExpireDelegationTokenRequest(token_hmac(KEY, "t7"), -1), 2)).error_code == 0
        assert len(jobs) == 1
        described = await renewer.ask(DescribeDelegationTokenRequest(None), 3)
        assert len(described.tokens) == count - 1
        assert len(jobs) == 3, "described and encoded"
        one = DescribeDelegationTokenRequest([DescribeDelegationTokenOwner("User", "8")])
        assert [each.token_id for each in (await Caller(world, "8").ask(one, 3)).tokens] == ["t8"]
        assert not (await Caller(world, "9").ask(one, 3)).tokens

    tell(scenario, TOKEN_SETTINGS)
