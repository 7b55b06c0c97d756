"""Runnel and Apache Kafka with the same ACLs: what clients receive that lack permissions must be alike."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tools.broker_process import BrokerProcess, free_port
from tools.conformance.result import SuiteResult
from tools.differential.authorization.run import SUPER_USER, compare_authorization, jaas_config
from tools.kafka import node
from tools.kafka.commands import VERSION
from tools.settings import STANDARD_AUTHORIZER

LISTENER, CONTROLLER = "SASL_PLAINTEXT", "CONTROLLER"
SECURED = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": f"User:{SUPER_USER};User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "delegation.token.secret.key": "the secret of tokens",
    # A member of a group that sends no heartbeats stays in it.
    "group.consumer.session.timeout.ms": "600000",
    "group.consumer.max.session.timeout.ms": "600000",
    "listener.security.protocol.map": f"{CONTROLLER}:{LISTENER},PLAINTEXT:PLAINTEXT,{LISTENER}:{LISTENER}",
}
"""Brokers are anonymous to each other, as they use a listener without protection."""


def run(folder: Path, settings: Mapping[str, str]) -> SuiteResult:
    description = (
        f"every API, sent to Runnel and Apache Kafka {VERSION} in every version by users without some of the "
        "ACLs that it needs"
    )
    result = SuiteResult("Denials equal to Apache Kafka's", description)
    theirs = free_port()
    secured = {**settings, **secured_settings()}
    kafka = node.start(folder / "kafka", secured, listeners=(f"{LISTENER}://127.0.0.1:{theirs}",))
    try:
        with secured_broker(folder / "runnel", secured) as (ours, our_controller):
            cases = compare_authorization((ours, theirs), (our_controller, kafka.controller_port))
    finally:
        kafka.stop()
    result.record_differences(cases)
    return result


def secured_settings() -> dict[str, str]:
    """Settings of a node with the users of all requests."""
    return {
        **SECURED,
        f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": jaas_config(),
        f"listener.name.{CONTROLLER.lower()}.plain.sasl.jaas.config": jaas_config(SUPER_USER),
    }


@contextmanager
def secured_broker(data_dir: Path, settings: Mapping[str, str]) -> Iterator[tuple[int, int]]:
    """A node of Runnel; its ports with SASL, of the broker and the controller."""
    ours, controller = free_port(), free_port()
    listeners = tuple(
        f"{name}://127.0.0.1:{port}" for name, port in ((LISTENER, ours), (CONTROLLER, controller))
    )
    voters = {"controller.quorum.voters": f"1@127.0.0.1:{controller}"}
    with BrokerProcess(data_dir, {**node.ONE_NODE, **settings, **voters}, listeners=listeners):
        yield ours, controller
