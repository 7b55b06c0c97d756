"""What the quorum has committed must be durable on a majority, at the time when it was acknowledged."""

from dataclasses import replace

import pytest

from runnel.raft.values import ReplicaKey
from runnel.raft.voters import Voter, Voters
from runnel.sim.cluster.cluster import Cluster
from runnel.sim.cluster.quorum_invariants import QuorumInvariants, durable_tail
from runnel.sim.cluster.simulation import Shape
from runnel.sim.cluster.workloads import simulate_records
from runnel.sim.history import Anomaly


def test_what_a_voter_had_before_its_files_were_replaced_counts() -> None:
    cluster = Cluster("quorum")
    node = cluster.add_node(1, {})
    invariants = QuorumInvariants(cluster)
    cluster.on_process_end = invariants.process_ended
    with cluster.running():
        node.start()
        assert cluster.scheduler.run_until(lambda: node.is_serving, 10)
        assert node.process is not None
        had = durable_tail(node.process, 0)
        assert had
        node.kill()
        invariants.disk_replaced(node)
        assert invariants._has(1, had)
        base_offset, (next_offset, epoch, crc) = max(had.items())
        assert not invariants._has(1, {base_offset: (next_offset, epoch, crc ^ 1)})
        assert not invariants._has(1, {next_offset: (next_offset + 1, epoch, crc)})


def voters(*ids: int) -> Voters:
    return Voters(Voter(ReplicaKey(each, bytes(15) + b"d")) for each in ids)


def test_voters_change_one_at_a_time() -> None:
    invariants = QuorumInvariants(Cluster("voters"))
    for ids in ((1, 2, 3), (1, 2, 3, 4), (2, 3, 4), (2, 3, 4)):
        invariants._voters_changed(voters(*ids))
    assert invariants.voter_changes == {"voters added": 1, "voters removed": 1}
    with pytest.raises(Anomaly, match="in one change"):
        invariants._voters_changed(voters(2, 3, 5))


def test_voters_are_added_and_removed_while_clients_are_served() -> None:
    def dynamic(shape: Shape) -> Shape:
        return replace(shape, nodes=4, kinds=("kill",), seconds=8, is_dynamic=True, joins=False)

    counts = simulate_records(1, None, dynamic).counts
    assert counts["voters added"] > 0
    assert counts["voters removed"] > 0
