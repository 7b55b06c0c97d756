"""Encoding and decoding agree with kio."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runnel.wire import Message, decode, encoded
from tests.messages.kio_oracle import assert_same, kio_class, kio_decode, kio_encode, narrower
from tests.wire.samples import all_messages, example, structs

MESSAGES = all_messages()


def check(message: Message, version: int) -> None:
    ours = encoded(message, version)
    entity = kio_decode(kio_class(type(message), version), ours)
    assert_same(message, entity, version)
    theirs = kio_encode(entity)
    assert ours == theirs
    assert_same(decode(type(message), version, theirs), entity, version)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_every_version_encodes_like_kio(message: type[Message]) -> None:
    known = [version for version in message.versions if kio_class(message, version)]
    if not known:
        pytest.skip("kio does not know it")
    for version in known:
        for shape in ("full", "null", "empty"):
            check(example(message, version, shape), version)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_message_encodes_like_kio(message: type[Message], data: st.DataObject) -> None:
    known = [version for version in message.versions if kio_class(message, version)]
    if not known:
        pytest.skip("kio does not know it")
    version = data.draw(st.sampled_from(known))
    choices = narrower(kio_class(message, version), message, version)
    strategy = structs(message, version, lambda struct, field: choices.get((struct, field.name)))
    check(data.draw(strategy), version)
