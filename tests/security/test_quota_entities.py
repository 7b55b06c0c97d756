"""Which quota applies to a client, with whom it is shared, and how many are remembered."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.security.quotas.buckets import Buckets
from runnel.security.quotas.entities import (
    Applied,
    Entity,
    Sharing,
    address_limit,
    applied_quota,
    canonical_address,
)
from runnel.security.quotas.rates import SampledRate, Windows

KEY, OTHER = "producer_byte_rate", "consumer_byte_rate"
ANY = None
Stored = dict[Entity, dict[str, float]]

# By precedence: the entity, and what shares a quota of it.
PRECEDENCE = [
    ((("client-id", "app"), ("user", "alice")), Sharing("alice", "app")),
    ((("client-id", ANY), ("user", "alice")), Sharing("alice", "app")),
    ((("user", "alice"),), Sharing("alice", None)),
    ((("client-id", "app"), ("user", ANY)), Sharing("alice", "app")),
    ((("client-id", ANY), ("user", ANY)), Sharing("alice", "app")),
    ((("user", ANY),), Sharing("alice", None)),
    ((("client-id", "app"),), Sharing(None, "app")),
    ((("client-id", ANY),), Sharing(None, "app")),
]


@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_the_most_specific_quota_decides_and_says_who_shares_it(first):
    quotas = {entity: {KEY: 10.0 + rank} for rank, (entity, _) in enumerate(PRECEDENCE) if rank >= first}
    assert applied_quota(quotas, KEY, "alice", "app") == Applied(10.0 + first, PRECEDENCE[first][1])


def test_a_quota_with_another_key_does_not_hide_one():
    quotas = {
        (("client-id", "app"), ("user", "alice")): {OTHER: 1.0},
        (("user", ANY),): {KEY: 5.0},
    }
    assert applied_quota(quotas, KEY, "alice", "app") == (5.0, Sharing("alice", None))
    assert applied_quota(quotas, OTHER, "alice", "app") == (1.0, Sharing("alice", "app"))
    assert applied_quota(quotas, OTHER, "bob", "app") is None


def test_a_client_without_an_id_has_the_default_quota():
    quotas: Stored = {(("client-id", ANY),): {KEY: 5.0}, (("ip", ANY),): {"connection_creation_rate": 1.0}}
    assert applied_quota(quotas, KEY, "ANONYMOUS", "") == (5.0, Sharing(None, ""))


NAMES = st.sampled_from(["alice", "bob", None])
ENTITIES = st.one_of(
    NAMES.map(lambda user: (("user", user),)),
    NAMES.map(lambda client: (("client-id", client),)),
    st.tuples(NAMES, NAMES).map(lambda names: (("client-id", names[0]), ("user", names[1]))),
)


@given(st.dictionaries(ENTITIES, st.just({KEY: 1.0}) | st.just({OTHER: 2.0}), max_size=12))
def test_the_winner_is_that_of_a_ranking(stored):
    """Against all stored entities that match, ranked by how specific user and client id are."""
    for user, client_id in product(("alice", "bob", "carol"), repeat=2):
        ranked = []
        for entity, values in stored.items():
            parts = dict(entity)
            if parts.get("user", user) in (user, None) and parts.get("client-id", client_id) in (
                client_id,
                None,
            ):
                of_user = 2 if "user" not in parts else int(parts["user"] is None)
                of_client = 2 if "client-id" not in parts else int(parts["client-id"] is None)
                if KEY in values:
                    ranked.append((of_user, of_client, entity))
        found = applied_quota(stored, KEY, user, client_id)
        if not ranked:
            assert found is None
            continue
        winner = min(ranked, key=lambda item: item[:2])[2]
        types = {kind for kind, _ in winner}
        assert found is not None
        assert found.sharing == Sharing(
            user if "user" in types else None, client_id if "client-id" in types else None
        )
        assert found.limit == stored[winner][KEY]


def test_addresses():
    quotas: Stored = {
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 3.0},
        (("ip", ANY),): {"connection_creation_rate": 7.0},
    }
    assert address_limit(quotas, "10.0.0.1") == 3
    assert address_limit(quotas, "10.0.0.2") == 7
    assert address_limit({}, "10.0.0.1") is None
    assert canonical_address("::ffff:10.0.0.1") == "10.0.0.1"
    assert canonical_address("fe80::1%eth0") == "fe80::1"
    assert canonical_address("FE80:0::1") == "fe80::1"
    assert canonical_address("simulated") == "simulated"


def test_buckets_are_limited_in_number():
    windows, buckets = Windows(), Buckets[SampledRate](10)
    for number in range(100):
        rate = SampledRate(windows, number)
        buckets.add(f"client-{number}", rate, number)
        assert len(buckets) <= 10
        assert buckets.get(f"client-{number}") is rate
    assert buckets.get("client-0") is None


def test_idle_buckets_are_dropped_first():
    windows, buckets = Windows(), Buckets[SampledRate](10)
    busy = SampledRate(windows, 0)
    buckets.add("busy", busy, 0)
    for number in range(9):
        buckets.add(number, SampledRate(windows, 0), 0)
    busy.record(1, 10_000)
    assert buckets.add("new", SampledRate(windows, 11_000), 11_000)
    assert buckets.get("busy") is busy and len(buckets) == 2


def test_of_busy_buckets_those_looked_up_recently_are_kept():
    windows, buckets = Windows(), Buckets[SampledRate](10)
    for number in range(10):
        assert not buckets.add(number, SampledRate(windows, 0), 0)
    assert buckets.get(0) is not None
    assert buckets.add("new", SampledRate(windows, 1), 1)
    assert buckets.get(0) is not None and buckets.get(1) is None and buckets.get(2) is not None
