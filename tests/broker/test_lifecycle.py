"""The registration of a broker: which refusals end the process, and which are waited out."""

import asyncio
from pathlib import Path

import pytest

from runnel.broker.runtime.lifecycle import BrokerLifecycle, RegistrationRefused
from runnel.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from runnel.model.errors import ErrorCode
from tests.broker.world import BrokerWorld


async def register(folder: Path, *errors: ErrorCode) -> int:
    """The broker epoch after these answers and a last one without an error."""
    async with BrokerWorld(folder) as world:
        lifecycle = BrokerLifecycle(world.broker, bytes(16), -1)
        answers = [*(BrokerRegistrationResponse(0, error.code) for error in errors)]
        answers.append(BrokerRegistrationResponse(broker_epoch=17))

        async def request(request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
            return answers.pop(0)

        lifecycle._channel.request = request  # type: ignore[method-assign, assignment]
        await lifecycle._register()
        return world.broker.epoch


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.REQUEST_TIMED_OUT,
        # The disk of the controller is full for a moment.
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_a_registration_is_repeated_after_errors_that_pass(tmp_path: Path, error: ErrorCode) -> None:
    assert asyncio.run(register(tmp_path, error, error)) == 17


@pytest.mark.parametrize("error", [ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION])
def test_a_registration_is_refused_for_good(tmp_path: Path, error: ErrorCode) -> None:
    with pytest.raises(RegistrationRefused):
        asyncio.run(register(tmp_path, error))
