"""What the quorum has committed must be durable on a majority, at the time when it was acknowledged."""

from runnel.sim.cluster.cluster import Cluster
from runnel.sim.cluster.quorum_invariants import QuorumInvariants, durable_tail


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
