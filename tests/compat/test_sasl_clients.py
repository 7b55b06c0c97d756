"""confluent-kafka, kafka-python and aiokafka authenticate with every mechanism they have."""

import asyncio
import time
from collections.abc import Callable
from contextlib import closing, suppress

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import errors as aiokafka_errors
from aiokafka.abc import AbstractTokenProvider as AsyncTokenProvider
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.security.sasl_node import PASSWORDS, sasl_node
from tools import token_issuer

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
TIMEOUT_S = 30
pytestmark = pytest.mark.parametrize("mechanism", MECHANISMS)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sasl-clients")
    settings = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        **token_issuer.settings(token_issuer.write_keys(folder / "keys.json")),
    }
    with sasl_node(str(folder / "data"), settings) as node:
        yield f"127.0.0.1:{node.ports['SASL_PLAINTEXT']}"


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """Tokens of one key, for kafka-python."""

    def __init__(self, key) -> None:
        self.key = key

    def token(self) -> str:
        return token_issuer.token(self.key)


class AsyncTokens(AsyncTokenProvider):  # type: ignore[misc]
    """Tokens of one key, for aiokafka."""

    def __init__(self, key) -> None:
        self.key = key

    async def token(self) -> str:
        return token_issuer.token(self.key)


def key_of(password: str):
    """The key that signs the tokens of a client: that of a stranger instead of a wrong password."""
    return token_issuer.KEY if password == PASSWORDS["bob"] else token_issuer.STRANGER


def confluent(bootstrap: str, mechanism: str, password: str) -> dict:
    if mechanism == "OAUTHBEARER":
        return {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "oauth_cb": lambda _: (
                token_issuer.token(key_of(password)),
                time.time() + token_issuer.LIFETIME_S,
            ),
            "log_level": 0,
        }
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "bob",
        "sasl.password": password,
        "log_level": 0,
    }


def python(bootstrap: str, mechanism: str, password: str, provider: Callable = Tokens) -> dict:
    given: dict = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return {**given, "sasl_oauth_token_provider": provider(key_of(password))}
    return {**given, "sasl_plain_username": "bob", "sasl_plain_password": password}


def test_confluent_kafka(bootstrap, mechanism) -> None:
    topic = f"confluent-{mechanism}"
    settings = confluent(bootstrap, mechanism, PASSWORDS["bob"])
    producer = Producer(settings)
    producer.produce(topic, b"value")
    assert producer.flush(TIMEOUT_S) == 0
    with closing(Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})) as consumer:
        consumer.subscribe([topic])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.value() == b"value"


def test_confluent_kafka_with_a_wrong_password(bootstrap, mechanism) -> None:
    failures: list[KafkaError] = []
    producer = Producer({**confluent(bootstrap, mechanism, "wrong"), "error_cb": failures.append})
    producer.produce("nothing", b"value")
    while not failures:
        producer.poll(0.1)
    assert failures[0].code() == KafkaError._AUTHENTICATION
    producer.purge()
    producer.flush(1)


def test_kafka_python(bootstrap, mechanism) -> None:
    topic = f"kafka-python-{mechanism}"
    settings = python(bootstrap, mechanism, PASSWORDS["bob"])
    with closing(KafkaProducer(**settings)) as producer:
        producer.send(topic, b"value").get(timeout=TIMEOUT_S)
    with closing(
        KafkaConsumer(topic, **settings, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000)
    ) as consumer:
        assert next(consumer).value == b"value"


def test_aiokafka(bootstrap, mechanism) -> None:
    topic = f"aiokafka-{mechanism}"
    settings = python(bootstrap, mechanism, PASSWORDS["bob"], AsyncTokens)

    async def story() -> None:
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"value")
        async with AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest") as consumer:
            assert (await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value == b"value"

    asyncio.run(story())


def test_aiokafka_with_a_wrong_password(bootstrap, mechanism) -> None:
    async def story() -> None:
        producer = AIOKafkaProducer(**python(bootstrap, mechanism, "wrong", AsyncTokens))
        with pytest.raises(aiokafka_errors.KafkaError):
            await producer.start()
        with suppress(Exception):
            await producer.stop()

    asyncio.run(story())
