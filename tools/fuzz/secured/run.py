"""A secured broker under mutated frames, SASL exchanges and TLS records, which must have no effect."""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from runnel.broker.apis.handlers import CONTROLLER_APIS
from runnel.client.loop_thread import fastest_loop
from runnel.security.sasl_client import Credentials
from tools.crash.rounds import Progress, no_progress
from tools.fuzz.attack import Attack
from tools.fuzz.mutate import mutated
from tools.fuzz.recordings import Recordings
from tools.fuzz.run import MEMORY_GROWTH_BYTES_MAX, Outcome, bugs, mutated_frames
from tools.fuzz.samples import sample_frames
from tools.fuzz.secured.broker import (
    ADMIN,
    ADMIN_PASSWORD,
    SCRAM_PASSWORD,
    SCRAM_USER,
    SecuredBroker,
)
from tools.fuzz.secured.sasl import BrokenSasl, Login
from tools.fuzz.secured.state import SECRETS, changed, fingerprint, populate
from tools.fuzz.secured.tls_records import TlsRecords
from tools.processes import memory_bytes

CONNECTIONS = 16
SHOWN_MAX = 10


class Assault(Protocol):
    """Something that sends what a broker does not expect."""

    outcomes: Counter[str]

    async def run(self) -> None: ...


class Target(NamedTuple):
    """A broker with something to lose."""

    broker: SecuredBroker
    topic_id: bytes


@contextmanager
def secured_target(folder: Path) -> Iterator[Target]:
    """A running broker."""
    with SecuredBroker(folder) as broker:
        yield Target(broker, populate(broker))


def _without_permissions(target: Target, count: int, seed: int, progress: Progress) -> Outcome:
    """Valid and mutated frames of clients without permissions: authenticated, anonymous, at a controller."""
    broker = target.broker
    pool = sample_frames(target.topic_id, is_harmless=False)
    at_controller = [each for each in pool if int.from_bytes(each[4:6], "big") in CONTROLLER_APIS]
    shares = (
        (broker.as_guest, pool, 2),
        (broker.as_anonymous, pool, 4),
        (broker.as_guest_at_controller, at_controller, 4),
    )
    attacks = [
        Attack(0, _frames(count // part, seed + number, frames), CONNECTIONS // 2, connect, SECRETS)
        for number, (connect, frames, part) in enumerate(shares)
    ]
    with broker.admin() as client:
        before = fingerprint(client, broker.data_dir)
    outcome = _fuzz(broker, attacks, progress)
    with broker.admin() as client:
        outcome.complaints += changed(before, fingerprint(client, broker.data_dir))
    leaks = sum((attack.leaks for attack in attacks), Counter[str]())
    outcome.complaints += [f"{number} responses to {each} show secrets" for each, number in leaks.items()]
    return outcome


def _tls(target: Target, count: int, seed: int, progress: Progress) -> Outcome:
    """Mutated TLS records and truncated handshakes."""
    assault = TlsRecords(target.broker.port, target.broker.client_tls, count, seed)
    outcome = _fuzz(target.broker, [assault], progress)
    outcome.complaints += [*assault.violations[:SHOWN_MAX], *_still_works(target.broker)]
    return outcome


def _sasl(target: Target, count: int, seed: int, progress: Progress) -> Outcome:
    """Authentications by each mechanism with one broken step."""
    broker = target.broker
    logins = [
        Login("PLAIN", Credentials(ADMIN, ADMIN_PASSWORD)),
        Login("SCRAM-SHA-256", Credentials(SCRAM_USER, SCRAM_PASSWORD)),
        Login("OAUTHBEARER", Credentials(token=broker.jwt())),
    ]
    assault = BrokenSasl(lambda: broker.connect(broker.port), logins, count, seed)
    outcome = _fuzz(broker, [assault], progress)
    outcome.complaints += [*assault.violations[:SHOWN_MAX], *_still_works(broker)]
    return outcome


def _authenticated(target: Target, count: int, seed: int, progress: Progress) -> Outcome:
    """Mutated frames of a client that may do everything, inside TLS."""
    pools = {"declared": sample_frames(target.topic_id)}
    frames = mutated_frames(count, seed, pools, Counter(), target.topic_id)
    outcome = _fuzz(target.broker, [Attack(0, frames, CONNECTIONS, target.broker.as_admin)], progress)
    outcome.complaints += _still_works(target.broker)
    return outcome


KINDS = {
    "unpermitted": _without_permissions,
    "tls": _tls,
    "sasl": _sasl,
    # The last one, as it may change anything.
    "authenticated": _authenticated,
}


def fuzz_secured(
    target: Target, kind: str, count: int, seed: int, progress: Progress = no_progress
) -> Outcome:
    """Send `count` frames, exchanges or flights of one kind."""
    return KINDS[kind](target, count, seed, progress)


def _frames(count: int, seed: int, pool: list[bytes]) -> Iterator[bytes]:
    """First every frame of the pool once, as far as the count permits half of it, then mutated ones."""
    chance = random.Random(seed)
    valid = list(dict.fromkeys(pool))
    chance.shuffle(valid)
    yield from valid[: count // 2]
    for _ in range(count - min(len(valid), count // 2)):
        yield mutated(chance, pool)


def _fuzz(broker: SecuredBroker, assaults: Sequence[Assault], progress: Progress) -> Outcome:
    before = memory_bytes(broker.pid)
    began = time.monotonic()
    with asyncio.Runner(loop_factory=fastest_loop) as runner:
        largest = runner.run(_watched(broker, assaults, progress))
    seconds = time.monotonic() - began
    complaints = [f"in the broker's log: {line}" for line in bugs(broker.log_tail(10**9))]
    if largest - before > MEMORY_GROWTH_BYTES_MAX:
        complaints.append(f"memory grew from {before >> 20} MB to {largest >> 20} MB")
    outcomes = sum((assault.outcomes for assault in assaults), Counter[str]())
    return Outcome(outcomes, Counter(), Recordings(), seconds, before, largest, complaints)


async def _watched(broker: SecuredBroker, assaults: Sequence[Assault], progress: Progress) -> int:
    """Run all; the largest memory seen."""
    tasks = [asyncio.create_task(assault.run()) for assault in assaults]
    largest = memory_bytes(broker.pid)
    pending = set(tasks)
    for turn in itertools.count():
        _, pending = await asyncio.wait(pending, timeout=2)
        largest = max(largest, memory_bytes(broker.pid))
        if turn % 5 == 0 or not pending:
            outcomes = sum((assault.outcomes for assault in assaults), Counter[str]())
            progress(f"{outcomes.total()} sent, {largest >> 20} MB, {dict(outcomes)}")
        if not pending:
            break
    for task in tasks:
        task.result()
    return largest


def _still_works(broker: SecuredBroker) -> list[str]:
    """Produce to a new topic and read it back; what went wrong."""
    values = [b"%d" % number for number in range(100)]
    topic = f"after-{time.monotonic_ns()}"
    with broker.admin() as client:
        client.create_topic(topic, partitions=1)
        client.send_all(topic, [(None, value) for value in values])
        read = [message.value for message in client.read(topic)]
    return [] if read == values else [f"{len(read)} of {len(values)} records are read back"]
