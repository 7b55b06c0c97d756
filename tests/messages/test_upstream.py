"""Every declaration matches Kafka's schema: names, types, versions, tags, nullability, defaults and order."""

import pytest

from runnel.messages import registry
from runnel.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tests.messages.upstream import assert_as_upstream, load


@pytest.mark.parametrize("key", registry.API_NAMES, ids=lambda key: registry.API_NAMES[key])
def test_messages_equal_upstream(key: int) -> None:
    facts = load("messages-4.3.0.json")
    api = registry.api(key)
    for message in (api.request, api.response):
        assert message.api_key == key == facts[message.__name__]["apiKey"]
        assert_as_upstream(message, facts[message.__name__])


@pytest.mark.parametrize("message", [ConsumerProtocolSubscription, ConsumerProtocolAssignment])
def test_the_consumer_protocol_equals_upstream(message: type) -> None:
    assert_as_upstream(message, load("messages-4.3.0.json")[message.__name__])


def test_every_api_is_declared() -> None:
    facts = load("messages-4.3.0.json")
    declared = {
        spec["apiKey"]: name.removesuffix("Request")
        for name, spec in facts.items()
        if spec["type"] == "request" and {"broker", "controller"} & set(spec.get("listeners", ()))
    }
    assert declared == registry.API_NAMES


def test_the_registry_lists_the_first_flexible_versions() -> None:
    for key in registry.API_NAMES:
        assert registry.FLEXIBLE_FROM.get(key) == registry.api(key).request.flexible_from
