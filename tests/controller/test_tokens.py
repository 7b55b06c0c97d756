"""Delegation tokens: who may create, renew, expire and see them, and when they end."""

import pytest

from runnel.controller.image import MetadataImage
from runnel.controller.settings import Settings
from runnel.controller.token_ids import TokenIds
from runnel.controller.tokens import (
    decide_create_token,
    decide_expire_token,
    decide_remove_expired_tokens,
    decide_renew_token,
    describe_tokens,
)
from runnel.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from runnel.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from runnel.model.errors import ApiError
from runnel.model.limits import DELEGATION_TOKENS_MAX, DELEGATION_TOKENS_PER_PRINCIPAL_MAX
from runnel.security.principal import ANONYMOUS, Principal
from runnel.security.scram_server import token_hmac

DAY_MS = 24 * 60 * 60 * 1000
SETTINGS = Settings({"delegation.token.secret.key": "key"})
ALICE, BOB, EVE = (Principal("User", name) for name in ("alice", "bob", "eve"))


class World:
    """An image that is changed by requests."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.image = MetadataImage()
        self.settings = settings
        self.version = 0
        self.ids = TokenIds()

    def apply(self, result):
        self.version += 1
        self.image.replay_batch(result.records, self.version)
        return result.response

    def create(self, requester=ALICE, token_id="t1", renewers=(), owner=None, lifetime_ms=-1, now_ms=0):
        request = CreateDelegationTokenRequest(
            owner and owner.type,
            owner and owner.name,
            [CreatableRenewers(renewer.type, renewer.name) for renewer in renewers],
            lifetime_ms,
        )
        return self.apply(
            decide_create_token(self.image, self.settings, request, requester, token_id, now_ms)
        )

    def renew(self, requester=ALICE, token_id="t1", period_ms=-1, now_ms=0):
        secret = token_hmac("key", token_id)
        return self.apply(
            decide_renew_token(self.image, self.settings, self.ids, secret, period_ms, requester, now_ms)
        )

    def expire(self, requester=ALICE, token_id="t1", period_ms=-1, now_ms=0):
        secret = token_hmac("key", token_id)
        return self.apply(
            decide_expire_token(self.image, self.settings, self.ids, secret, period_ms, requester, now_ms)
        )

    def describe(self, requester=ALICE, owners=None, permitted=()):
        request = DescribeDelegationTokenRequest(
            None if owners is None else [DescribeDelegationTokenOwner(*owner[:2]) for owner in owners]
        )
        response = describe_tokens(
            self.image.tokens,
            self.settings,
            request,
            requester,
            lambda token_id, owner: token_id in permitted,
        )
        return {token.token_id: bytes(token.hmac) for token in response.tokens}


def refused(code: int, call, *arguments, **options) -> None:
    with pytest.raises(ApiError) as refusal:
        call(*arguments, **options)
    assert refusal.value.code == code


def test_a_token_is_valid_for_a_day_and_at_most_a_week() -> None:
    world = World()
    created = world.create(renewers=[BOB])
    assert (created.principal_name, created.token_requester_principal_name) == ("alice", "alice")
    assert (created.expiry_timestamp_ms, created.max_timestamp_ms) == (DAY_MS, 7 * DAY_MS)
    assert created.hmac == token_hmac("key", "t1")
    assert world.renew(BOB, now_ms=DAY_MS).expiry_timestamp_ms == 2 * DAY_MS
    assert world.renew(period_ms=30 * DAY_MS, now_ms=DAY_MS).expiry_timestamp_ms == 7 * DAY_MS
    assert world.expire(period_ms=1000, now_ms=2 * DAY_MS).expiry_timestamp_ms == 2 * DAY_MS + 1000
    refused(66, world.renew, now_ms=3 * DAY_MS)
    assert decide_remove_expired_tokens(world.image, 2 * DAY_MS).response == 0
    assert world.apply(decide_remove_expired_tokens(world.image, 3 * DAY_MS)) == 1
    assert not world.image.tokens


def test_a_shorter_lifetime_may_be_requested() -> None:
    created = World().create(lifetime_ms=1000, now_ms=5)
    assert (created.expiry_timestamp_ms, created.max_timestamp_ms) == (1005, 1005)
    assert World().create(lifetime_ms=30 * DAY_MS).max_timestamp_ms == 7 * DAY_MS


def test_owner_requester_and_renewers_may_change_a_token() -> None:
    world = World()
    world.create(ALICE, owner=BOB)
    for principal in (ALICE, BOB):
        world.renew(principal)
    refused(63, world.renew, EVE)
    refused(63, world.expire, EVE)
    refused(62, world.renew, token_id="t2")
    world.expire(BOB)
    refused(62, world.renew)


def test_only_authenticated_clients_use_tokens() -> None:
    world = World()
    by_token = ALICE._replace(is_by_token=True)
    for principal in (ANONYMOUS, by_token):
        for call in (world.create, world.renew, world.expire, world.describe):
            refused(64, call, principal)


def test_without_a_secret_there_are_no_tokens() -> None:
    world = World(Settings())
    for call in (world.create, world.renew, world.expire, world.describe):
        refused(61, call)


def test_owners_and_renewers_are_users() -> None:
    refused(67, World().create, renewers=[Principal("Group", "g")])
    refused(67, World().create, owner=Principal("Group", "g"))


def test_the_number_of_tokens_is_limited() -> None:
    world = World()
    world.create()
    world.image.tokens.update(dict.fromkeys(map(str, range(DELEGATION_TOKENS_MAX)), world.image.tokens["t1"]))
    refused(44, world.create, BOB, token_id="one more")


def test_no_principal_uses_up_the_tokens_of_the_cluster() -> None:
    world = World()
    for number in range(DELEGATION_TOKENS_PER_PRINCIPAL_MAX):
        world.create(ALICE, str(number), owner=BOB)
    refused(44, world.create, ALICE)
    refused(44, world.create, BOB)
    refused(44, world.create, EVE, owner=BOB)
    world.create(EVE)
    world.expire(BOB, "0")
    world.create(ALICE, "again")


def test_the_size_of_a_token_is_limited() -> None:
    short, long = Principal("User", 256 * "a"), Principal("User", 257 * "a")
    world = World()
    world.create(short, renewers=100 * [short])
    refused(44, world.create, renewers=101 * [BOB])
    refused(44, world.create, renewers=[long])
    refused(44, world.create, owner=long)
    refused(44, world.create, long)


def test_others_tokens_are_described_by_permission_only() -> None:
    world = World()
    world.create(ALICE, "own")
    world.create(BOB, "renewable", renewers=[ALICE])
    world.create(EVE, "hidden")
    world.create(EVE, "permitted")
    assert set(world.describe(permitted={"permitted"})) == {"own", "renewable", "permitted"}
    assert set(world.describe(owners=[EVE], permitted={"permitted"})) == {"permitted"}
    assert world.describe(owners=[]) == {}
    assert world.describe(owners=[ALICE])["own"] == token_hmac("key", "own")


def test_the_hmac_of_a_token_is_derived_once() -> None:
    derived: list[str] = []

    def derive(token_id: str) -> bytes:
        derived.append(token_id)
        return token_hmac("key", token_id)

    world = World()
    for owner in (ALICE, BOB):
        world.create(owner, owner.name)
    ids, tokens = TokenIds(), world.image.tokens
    for _ in range(3):
        assert ids.find(tokens, b"random", derive) is None
        assert ids.find(tokens, token_hmac("key", "bob"), derive) == "bob"
    assert derived == ["alice", "bob"]
    del tokens["bob"]
    world.create(EVE, "eve")
    assert ids.find(tokens, token_hmac("key", "bob"), derive) is None
    assert ids.find(tokens, token_hmac("key", "eve"), derive) == "eve"
    assert derived == ["alice", "bob", "eve"]
    assert len(ids) == 2
