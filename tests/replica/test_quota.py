"""The rate of throttled replication."""

from random import Random

from runnel.replica.quota import UNLIMITED, ReplicationQuota


def test_what_was_replicated_is_paid_off_at_the_rate() -> None:
    quota = ReplicationQuota(rate=1000)
    assert not quota.is_exceeded(0)
    quota.record(500, 0)
    assert quota.delay_ms(0) == 501
    assert quota.delay_ms(400) == 101
    assert quota.is_exceeded(499)
    assert not quota.is_exceeded(500) and quota.delay_ms(500) == 0
    # Idle time is not saved up.
    quota.record(500, 60_000)
    assert quota.is_exceeded(60_499)


def test_a_rate_of_zero_and_no_limit() -> None:
    quota = ReplicationQuota(rate=0)
    assert quota.is_exceeded(0) and quota.delay_ms(0) == -1
    quota.rate = UNLIMITED
    quota.record(2**40, 1)
    assert not quota.is_exceeded(2)


def test_the_rate_is_kept_on_average() -> None:
    random, quota = Random(1), ReplicationQuota(rate=10_000)
    now_ms = sent_bytes = 0
    while now_ms < 100_000:
        if not quota.is_exceeded(now_ms):
            size_bytes = random.randint(1, 5000)
            quota.record(size_bytes, now_ms)
            sent_bytes += size_bytes
        now_ms += random.randint(1, 20)
    assert 900_000 < sent_bytes <= 1_005_000
