"""Requests about delegation tokens: for others with a permission, and about many of them."""

import json
from typing import Any

from runnel.messages.create_delegation_token import CreateDelegationTokenRequest
from runnel.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from runnel.messages.expire_delegation_token import ExpireDelegationTokenRequest
from runnel.messages.renew_delegation_token import RenewDelegationTokenRequest
from runnel.model.limits import SLICE_ELEMENTS
from runnel.schemas.metadata import DelegationTokenRecord
from runnel.security.acl import Operation, ResourceType
from runnel.security.audit import AuditPolicy
from runnel.security.scram_server import token_hmac
from runnel.server.audit_log import AuditLog
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

        def recorded(job: Any) -> Any:
            jobs.append(job)
            return run_blocking(job)

        broker.disk.run_blocking = recorded
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


def test_decisions_about_tokens_of_others_are_recorded(tell, tmp_path) -> None:
    path = tmp_path / "audit.jsonl"

    async def scenario(world: Any) -> None:
        acls = prepare(world)
        await acls.add("User:bob", Operation.CREATE_TOKENS, resource_type=ResourceType.USER)
        await world.broker.metadata.submit([token_record("t1", "User:bob"), token_record("t2", "User:eve")])
        audit = AuditLog(AuditPolicy(), path=str(path), has_logger=False, queue_max=100, now_ms=lambda: 0)
        world.broker.gates.audit = audit
        alice = Caller(world, "alice")
        for owner, code in (("bob", 0), ("eve", 65)):
            created = await alice.ask(CreateDelegationTokenRequest("User", owner), 3)
            assert created.error_code == code
        everything = await alice.ask(DescribeDelegationTokenRequest(None), 3)
        assert len(everything.tokens) == 1, "that which it has created"
        of_eve = DescribeDelegationTokenRequest([DescribeDelegationTokenOwner("User", "eve")])
        assert not (await alice.ask(of_eve, 3)).tokens
        audit.close()

    tell(scenario, TOKEN_SETTINGS)
    recorded = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(each["outcome"], each["operation"], each["resource_name"]) for each in recorded] == [
        ("allowed", "CREATE_TOKENS", "User:bob"),
        ("denied", "CREATE_TOKENS", "User:eve"),
        ("denied", "DESCRIBE", "t2"),
    ]
