"""Whatever brokers do, in whatever order: partitions stay in states that lose nothing."""

from random import Random

import pytest

from runnel.controller import alter_partition, broker_changes
from runnel.controller.image import MetadataImage
from runnel.controller.record_versions import encode_records
from runnel.controller.values import PartitionState
from runnel.schemas.metadata import MetadataRecord, decode_metadata_record
from tests.controller.cluster_commands import ClusterCommands
from tests.controller.images import same
from tests.controller.test_partition_index import check as check_index

BROKERS = range(1, 5)
SEEDS = 25
EVENTS = 60

At = tuple[bytes, int]


class Witness:
    """Checks the invariants, and remembers what must only grow."""

    def __init__(self, cluster: ClusterCommands) -> None:
        self.cluster = cluster
        self.before: dict[At, PartitionState] = {}
        self.were_in_sync: dict[At, set[int]] = {}
        self.observe()
        cluster.after_batch = self.observe

    def observe(self) -> None:
        """After each batch, even of a decision that is not complete."""
        for topic in self.cluster.image.topics.values():
            for index, state in enumerate(topic.partitions):
                self._check_history((topic.id, index), state)

    def check(self) -> None:
        """When no decision is under way."""
        for topic in self.cluster.image.topics.values():
            for state in topic.partitions:
                self._check_state(state)
        check_index(self.cluster.image)

    def _check_state(self, state: PartitionState) -> None:
        image = self.cluster.image
        assert set(state.isr) <= set(state.replicas), state
        assert set(state.eligible) <= set(state.replicas) - set(state.isr), state
        assert len(state.directories) == len(state.replicas), state
        assert set(state.adding) | set(state.removing) <= set(state.replicas), state
        if state.leader != -1:
            assert state.leader in state.isr, state
            assert image.is_active(state.leader), f"{state} is led by a broker that is not active"
        for member in state.isr:
            if not image.is_active(member):
                is_last = state.isr == (member,) and state.leader == -1
                assert is_last and not image.has_eligible_replicas, f"{member} is not active: {state}"
        assert state.isr or image.has_eligible_replicas, state

    def _check_history(self, at: At, state: PartitionState) -> None:
        before = self.before.get(at, state)
        assert state.leader_epoch >= before.leader_epoch
        assert state.partition_epoch >= before.partition_epoch
        if state != before:
            assert state.partition_epoch > before.partition_epoch
        if state.leader != before.leader:
            assert state.leader_epoch > before.leader_epoch
        self.before[at] = state
        members = self.were_in_sync.setdefault(at, set())
        members.update(state.isr)
        assert set(state.eligible) <= members, "a replica is eligible that was never in sync"


def new_cluster(has_eligible: bool) -> ClusterCommands:
    cluster = ClusterCommands()
    cluster.play(f"level eligible.leader.replicas.version={int(has_eligible)}")
    for broker in BROKERS:
        cluster.play(f"register {broker}")
        cluster.play(f"beat {broker}")
    cluster.play("create t:3:3 min.insync.replicas=2")
    cluster.play("create u:2:2")
    cluster.play("create v:1:1")
    return cluster


def random_command(cluster: ClusterCommands, chance: Random) -> str:
    """Something that may happen to the cluster."""
    broker = chance.choice(BROKERS)
    known = cluster.image.brokers.get(broker)
    epoch = known.epoch if known else -1
    topic = chance.choice(list(cluster.image.topics.values()))
    index = chance.randrange(len(topic.partitions))
    state = topic.partitions[index]
    members = chance.sample(state.replicas, chance.randint(1, len(state.replicas)))
    target = chance.sample(BROKERS, chance.randint(1, 3))
    commands = [
        *[f"register {broker} inc={chance.randint(1, 5)} prev={chance.choice([-1, epoch])}"] * 3,
        *[f"beat {broker}"] * 4,
        *[f"beat {broker} {chance.choice(['fence', 'stop', 'fence stop', 'at=0'])}"] * 4,
        f"tick {chance.choice([100, 500, 2000, 9000])}",
        f"lost {broker}",
        "expire",
        "activate",
        *[f"alter {state.leader} {topic.name}-{index} isr={'+'.join(map(str, members))}"] * 3,
        f"move {topic.name}-{index}:{'+'.join(map(str, target))}",
        f"move {topic.name}-{index}:stop",
        f"elect {topic.name}-{index}",
        f"elect {topic.name}-{index} unclean",
        "balance",
        f"grow {topic.name}:{len(topic.partitions) + 1}",
        f"set topic/t min.insync.replicas={chance.randint(1, 3)}",
        f"unregister {broker}",
    ]
    return chance.choice(commands)


def check_log(cluster: ClusterCommands) -> None:
    """The records give the same image again, as they are stored."""
    image = MetadataImage()
    for batch in cluster.batches:
        stored = [decode_metadata_record(value) for value in encode_records(batch, image.metadata_level)]
        records = [record for record in stored if isinstance(record, MetadataRecord)]
        image.replay_batch(records, image.version + len(records))
    assert same(image, cluster.image)


@pytest.mark.parametrize("has_eligible", [False, True], ids=["isr", "elr"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_invariants_hold_after_every_event(seed: int, has_eligible: bool) -> None:
    cluster, chance = new_cluster(has_eligible), Random(seed)
    witness = Witness(cluster)
    for _ in range(EVENTS):
        cluster.play(random_command(cluster, chance))
        witness.check()
    check_log(cluster)


@pytest.mark.parametrize("has_eligible", [False, True], ids=["isr", "elr"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_other_decisions_may_come_between_two_steps(
    seed: int, has_eligible: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, chance = new_cluster(has_eligible), Random(seed)
    witness = Witness(cluster)
    depth = 0

    def between() -> None:
        nonlocal depth
        if depth < 2 and chance.random() < 0.5:
            depth += 1
            cluster.play(random_command(cluster, chance))
            depth -= 1

    monkeypatch.setattr(broker_changes, "PARTITIONS_PER_STEP", 2)
    monkeypatch.setattr(alter_partition, "PARTITIONS_PER_STEP", 2)
    cluster.between_steps = between
    for _ in range(EVENTS):
        cluster.play(random_command(cluster, chance))
        witness.check()
    check_log(cluster)
