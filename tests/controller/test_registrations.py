"""Limits of what a node can register: it is in every image and snapshot of the metadata."""

from typing import Any

import pytest

from runnel.controller.features import SUPPORTED_FEATURES
from runnel.controller.registrations import decide_controller_registration, register_broker
from runnel.messages import broker_registration as broker
from runnel.messages import controller_registration as controller
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.limits import REGISTERED_DIRECTORIES_MAX, REGISTERED_LISTENERS_MAX
from tests.controller.cluster_commands import ClusterCommands

LIMITS = [
    {"id": -1},
    {"id": -5},
    {"listeners": REGISTERED_LISTENERS_MAX + 1},
    {"features": REGISTERED_DIRECTORIES_MAX + 1},
]


def broker_request(
    id: int = 1, listeners: int = 1, features: int = 0, directories: int = 1
) -> broker.BrokerRegistrationRequest:
    known = [broker.Feature(name, *levels) for name, levels in SUPPORTED_FEATURES.items()]
    return broker.BrokerRegistrationRequest(
        id,
        cluster_id="cluster",
        incarnation_id=b"i" * 16,
        listeners=[broker.Listener(f"L{number}", "host", number) for number in range(listeners)],
        features=known + [broker.Feature(f"f{number}", 0, 1) for number in range(features)],
        log_dirs=[(1000 + number).to_bytes(16, "big") for number in range(directories)],
    )


def register(cluster: ClusterCommands, request: broker.BrokerRegistrationRequest) -> None:
    cluster.steps(
        register_broker(cluster.image, cluster.settings, cluster.sessions, request, cluster.identity, 0)
    )


@pytest.mark.parametrize("wrong", [*LIMITS, {"directories": REGISTERED_DIRECTORIES_MAX + 1}])
def test_brokers(wrong: dict[str, Any]) -> None:
    cluster = ClusterCommands()
    with pytest.raises(ApiError) as refused:
        register(cluster, broker_request(**wrong))
    assert refused.value.error is ErrorCode.INVALID_REGISTRATION
    assert not cluster.image.brokers
    register(
        cluster,
        broker_request(
            listeners=REGISTERED_LISTENERS_MAX, features=900, directories=REGISTERED_DIRECTORIES_MAX
        ),
    )
    assert list(cluster.image.brokers) == [1]


@pytest.mark.parametrize("wrong", LIMITS)
def test_controllers(wrong: dict[str, Any]) -> None:
    request = controller.ControllerRegistrationRequest(
        wrong.get("id", 1),
        incarnation_id=b"i" * 16,
        listeners=[
            controller.Listener(f"L{number}", "host", number) for number in range(wrong.get("listeners", 1))
        ],
        features=[controller.Feature(f"f{number}", 0, 1) for number in range(wrong.get("features", 0))],
    )
    with pytest.raises(ApiError) as refused:
        decide_controller_registration(ClusterCommands().image, request)
    assert refused.value.error is ErrorCode.INVALID_REGISTRATION
