"""Schemas in the console, and messages that are decoded with them."""

import pytest

from tests.gateway.registry.calls import register

FIRST = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
SECOND = FIRST.replace("]}", ',{"name":"note","type":"string","default":"<b>none</b>"}]}')


@pytest.fixture(scope="module")
def orders(registry, plain_broker):
    first, second = (register(registry, "shown-value", text) for text in (FIRST, SECOND))
    register(registry, "twin-value", FIRST)
    framed = b"\x00" + second["id"].to_bytes(4, "big") + b"\x54" + b"\x14<i>hey</i>"
    with plain_broker.client() as client:
        client.create_topic("shown", partitions=1)
        client.send("shown", framed)
        client.send("shown", b"\x00" + (4711).to_bytes(4, "big") + b"\x02")
        client.send("shown", b"\x00" + first["id"].to_bytes(4, "big"))
    return first, second


def test_subjects_are_listed(registry, orders):
    page = registry.content("/console/schemas?q=SHOWN").text

    assert "shown-value" in page
    assert "twin-value" not in page
    assert 'href="/console/schema?id=shown-value"' in page
    assert "Schemas" in registry.get("/console/schemas").text


def test_a_version_and_its_differences(registry, orders):
    page = registry.content("/console/schema?id=shown-value").text

    assert "Changes since version 1" in page
    assert "<ins>" in page and "&#34;name&#34;: &#34;note&#34;" in page
    assert "<b>none</b>" not in page
    first = registry.content("/console/schema?id=shown-value&version=1").text
    assert "twin-value version 1" in first
    assert "Changes since" not in first
    assert (
        "Changes since version 2"
        in registry.content("/console/schema?id=shown-value&version=1&against=2").text
    )
    assert registry.content("/console/schema?id=nothing").status == 404
    assert registry.content("/console/schema?id=shown-value&version=9").status == 404


def test_messages_are_decoded(registry, orders):
    page = registry.get("/console/topics/shown/message?partition=0&offset=0").text

    assert "shown-value version 2" in page
    assert "&#34;id&#34;: 42" in page
    assert "&#34;note&#34;: &#34;&lt;i&gt;hey&lt;/i&gt;&#34;" in page
    assert (
        "shown-value version 2"
        in registry.get("/console/topics/shown/message?partition=0&offset=0&as=hex").text
    )


@pytest.mark.parametrize("offset", [1, 2], ids=["unknown id", "wrong data"])
def test_what_does_not_decode_is_shown_as_it_is(registry, orders, offset):
    reply = registry.get(f"/console/topics/shown/message?partition=0&offset={offset}")

    assert reply.status == 200
    assert "Decoded with" not in reply.text
