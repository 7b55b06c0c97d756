"""Invariants of consumer groups under changes of members, topics and protocols, failed appends and failovers.

Each seed is one history; a failure reports its seed.
"""

from random import Random

import pytest

from runnel.coordinator.group.consumer.group import ConsumerGroupState
from runnel.coordinator.group.settings import GroupSettings
from runnel.model.errors import ErrorCode
from tests.coordinator.cluster import FakeCluster
from tests.coordinator.group_clients import GROUP, CooperativeConsumer, NewConsumer
from tests.coordinator.world import World

STEPS = 250
CONSUMERS_MAX = 7
Client = NewConsumer | CooperativeConsumer


class Churn:
    """One history and its invariants."""

    def __init__(self, seed: int, *, is_mixed: bool) -> None:
        self.random = Random(seed)
        self.is_mixed = is_mixed
        cluster = FakeCluster()
        cluster.settings["consumer.assignment.interval.ms"] = self.random.choice([0, 1000])
        cluster.make("t", 6)
        cluster.make("u", 3)
        self.world = World(GroupSettings(initial_rebalance_delay_ms=0), cluster)
        self.clients: list[Client] = []
        self.count = 0
        self.epochs = (0, 0)
        self.member_epochs: dict[str, int] = {}

    def step(self) -> None:
        actions = {
            self.come: 4.0,
            self.go: 1.0,
            self.crash: 1.0,
            self.restart: 1.0,
            self.change: 1.0,
            self.fail: 1.0,
            self.move: 0.5,
            self.grow: 0.5,
            self.retreat: 0.5,
        }
        if self.random.random() < 0.2:
            self.random.choices(list(actions), list(actions.values()))[0]()
            self.check()
        for client in self.random.sample(self.clients, len(self.clients)):
            if self.random.random() < 0.7:
                client.step()
                self.check()
        self.world.wait(self.random.choice([0, 10, 500, 2000]))
        self.check()

    def come(self) -> None:
        if len(self.clients) >= CONSUMERS_MAX:
            return
        self.count += 1
        name = f"c{self.count}"
        instance_id = f"i{self.count}" if self.random.random() < 0.3 else None
        topics = self.random.choice([frozenset("t"), frozenset("tu")])
        if self.is_mixed and self.random.random() < 0.5:
            self.clients.append(CooperativeConsumer(self.world, self.random, name, instance_id, topics))
            return
        client = NewConsumer(self.world, self.random, name, instance_id, topics)
        if self.random.random() < 0.3:
            client.topics, client.pattern = frozenset(), self.random.choice(["t.*", "[tuv].*", "none"])
        self.clients.append(client)

    def go(self) -> None:
        if self.clients:
            self.clients.pop(self.random.randrange(len(self.clients))).leave()

    def retreat(self) -> None:
        """All members of one protocol leave: the group is migrated or empty."""
        kind = self.random.choice([NewConsumer, CooperativeConsumer])
        for client in [client for client in self.clients if isinstance(client, kind)]:
            self.clients.remove(client)
            client.leave()

    def crash(self) -> None:
        if self.clients:
            self.clients.pop(self.random.randrange(len(self.clients)))

    def restart(self) -> None:
        """A static member leaves temporarily and rejoins with another member id."""
        static = [
            place
            for place, client in enumerate(self.clients)
            if isinstance(client, NewConsumer) and client.instance_id is not None
        ]
        if not static:
            return
        place = self.random.choice(static)
        old = self.clients[place]
        assert isinstance(old, NewConsumer)
        old.leave(epoch=-2)
        self.count += 1
        self.clients[place] = NewConsumer(
            self.world, self.random, f"c{self.count}", old.instance_id, old.topics, old.pattern
        )

    def change(self) -> None:
        if self.clients:
            client = self.random.choice(self.clients)
            client.topics = self.random.choice([frozenset("t"), frozenset("u"), frozenset("tu")])
            if isinstance(client, NewConsumer):
                client.must_tell_all = True
            else:
                client.wants_to_join = True

    def fail(self) -> None:
        refusals = [None, None, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS]
        self.world.log_refuses = self.random.choice(refusals)

    def move(self) -> None:
        self.world.reload()

    def grow(self) -> None:
        cluster = self.world.cluster
        if "v1" in cluster.topics and self.random.random() < 0.5:
            self.drop("v1")
        elif "v1" not in cluster.topics:
            cluster.make("v1", 2)
        else:
            cluster.grow("u", min(cluster.topics["u"].partition_count + 1, 6))

    def drop(self, topic: str) -> None:
        self.world.cluster.delete(topic)
        for client in self.clients:
            client.owned = {partition for partition in client.owned if partition[0] != topic}
            if isinstance(client, NewConsumer):
                client.target = {partition for partition in client.target if partition[0] != topic}

    def check(self) -> None:
        owners: dict[tuple[str, int], str] = {}
        for client in self.clients:
            for partition in client.owned:
                other = owners.setdefault(partition, client.name)
                assert other == client.name, f"{partition} is owned by {other} and {client.name}"
        group = self.world.shard.consumers.by_id.get(GROUP)
        if group is None:
            self.epochs = (0, 0)
            return
        assert GROUP not in self.world.shard.groups
        given = [p for member in group.members.values() for p in (*member.assigned, *member.revoking)]
        assert len(given) == len(set(given)), "a partition has two owners in the log"
        assert group.owners.keys() == set(given)
        assert group.assignment_epoch <= group.epoch
        epochs = (group.epoch, group.assignment_epoch)
        assert epochs[0] >= self.epochs[0], "the group epoch decreased"
        assert epochs[1] >= self.epochs[1], "the assignment epoch decreased"
        self.epochs = epochs

    def settle(self) -> None:
        """Without further faults all subscribed partitions must be owned in bounded time."""
        self.world.log_refuses = None
        for _ in range(150):
            for client in list(self.clients):
                client.step()
                self.check()
            self.world.wait(1000)
        cluster = self.world.cluster
        wanted = set()
        for client in self.clients:
            names = set(client.topics)
            if isinstance(client, NewConsumer) and client.pattern:
                names.update(cluster.matching(client.pattern))
            for name in names:
                topic = cluster.topic(name)
                wanted |= {(name, number) for number in range(topic.partition_count if topic else 0)}
        owned = [partition for client in self.clients for partition in client.owned]
        assert sorted(owned) == sorted(wanted), "not all partitions are owned in a stable group"
        group = self.world.shard.consumers.by_id.get(GROUP)
        if any(isinstance(client, NewConsumer) for client in self.clients):
            assert group is not None
            assert len(group.members) == len(self.clients)
            assert group.state is ConsumerGroupState.STABLE
        elif group is not None:
            assert all(member.is_classic for member in group.members.values())


@pytest.mark.parametrize("seed", range(20))
def test_invariants_hold(seed: int) -> None:
    churn = Churn(seed, is_mixed=False)
    for _ in range(STEPS):
        churn.step()
    churn.settle()


@pytest.mark.parametrize("seed", range(20))
def test_invariants_hold_with_classic_members(seed: int) -> None:
    churn = Churn(seed, is_mixed=True)
    for _ in range(STEPS):
        churn.step()
    churn.settle()
