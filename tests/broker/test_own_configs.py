"""Changes of the configs of listeners, which this broker validates before the controller decides."""

from collections.abc import Mapping

from runnel.broker.runtime.gates import Gates, Unlimited
from runnel.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from runnel.model.configs import AlterOperation, ResourceType
from runnel.model.errors import ErrorCode
from runnel.ports.service import Session

KEYSTORE = "listener.name.ssl.ssl.keystore.location"


class Limited(Unlimited):
    """Quotas that note what is charged."""

    def __init__(self, met: list[object]) -> None:
        self.met = met

    def limits(self, session: Session) -> bool:
        return True

    def throttle_ms(self, session: Session, api_key: int, request_bytes: int, *, is_exempt: bool) -> int:
        self.met.append("throttle")
        return 0


def change(*resources: tuple[str, dict[str, str]]) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(
        [
            AlterConfigsResource(
                ResourceType.BROKER,
                broker,
                [AlterableConfig(name, AlterOperation.SET, value) for name, value in configs.items()],
            )
            for broker, configs in resources
        ]
    )


def outcome(tell, complaint: str | None, *resources: tuple[str, dict[str, str]]):
    """(what was charged and validated in turn, the error codes)."""
    met: list[object] = []
    codes: list[int] = []

    async def validate(changes: Mapping[str, str | None]) -> str | None:
        met.append(dict(changes))
        return complaint

    async def scenario(world) -> None:
        world.broker.validate_configs = validate
        world.broker.gates = Gates(quotas=Limited(met))
        client = await world.connect()
        response = await client.ask(change(*resources), 1)
        codes.extend(each.error_code for each in response.responses)

    tell(scenario)
    return met, codes


def test_known_configs_are_validated_after_the_client_is_charged(tell):
    configs = {KEYSTORE: "/a", "listener.name.ssl.ssl.keystore.locatoin": "/b", "message.max.bytes": "1"}
    met, codes = outcome(tell, "It is damaged.", ("1", configs))
    assert met == ["throttle", {KEYSTORE: "/a"}]
    assert codes == [ErrorCode.INVALID_CONFIG.code]


def test_a_request_is_charged_once(tell):
    met, codes = outcome(tell, None, ("1", {KEYSTORE: "/a"}))
    assert met == ["throttle", {KEYSTORE: "/a"}]
    assert codes == [0]


def test_unknown_configs_are_not_validated(tell):
    met, codes = outcome(tell, "It is damaged.", ("1", {"listener.name.ssl.nonsense": "1"}))
    assert met == ["throttle"]
    assert codes == [ErrorCode.INVALID_REQUEST.code]


def test_one_resource_of_a_request_is_validated(tell):
    met, codes = outcome(tell, None, *[("1", {KEYSTORE: f"/{number}"}) for number in range(3)])
    assert met == ["throttle", {KEYSTORE: "/0"}]
    assert codes == [ErrorCode.INVALID_REQUEST.code] * 3


def test_other_brokers_have_other_files(tell):
    met, codes = outcome(tell, None, ("2", {KEYSTORE: "/a"}), ("1", {"message.max.bytes": "1"}))
    assert met == ["throttle"]
    assert codes == [ErrorCode.INVALID_REQUEST.code] * 2
