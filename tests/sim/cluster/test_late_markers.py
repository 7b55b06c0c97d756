"""Markers of clients before KIP-890 are not delivered after their sender gave up the connection."""

import pytest

from runnel.messages.metadata import MetadataRequest
from runnel.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
from runnel.sim.cluster.late_markers import has_marker_of_older_client
from runnel.wire.frame import request_frame
from tests.sim.cluster.test_network import World


def markers(*versions: int) -> bytes:
    request = WriteTxnMarkersRequest([WritableTxnMarker(transaction_version=version) for version in versions])
    return b"".join(request_frame(request, 2, 1, "node 1"))


OTHER = b"".join(request_frame(MetadataRequest(), 12, 1, "client"))


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        (markers(2), False),
        (markers(1), True),
        (markers(2, 0), True),
        (OTHER + markers(1), True),
        (markers(2) + OTHER, False),
        (OTHER, False),
        (b"", False),
        (OTHER[:5], False),
    ],
)
def test_markers_of_older_clients_are_recognised(chunk: bytes, expected: bool) -> None:
    assert has_marker_of_older_client(chunk) is expected


def test_what_is_never_late_is_lost_with_its_connection() -> None:
    world = World()
    world.network.is_never_late = has_marker_of_older_client
    on_time, late = world.connect(), world.connect()
    on_time.send(markers(1))
    world.scheduler.run_for(1)
    assert world.received == [markers(1)]
    heal = world.network.block([("c", "s")])
    late.send(markers(2))
    late.send(markers(1))
    late.close()
    world.scheduler.run_for(1)
    heal()
    world.scheduler.run_for(5)
    assert world.received == [markers(1), markers(2), "reset"]
