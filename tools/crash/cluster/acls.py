"""What each kind of client may do, as ACLs: no more than it needs."""

from collections.abc import Iterator

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tools.cluster.security import ADMIN, NO_SECURITY, OBSERVER, Security
from tools.crash.chain.run import INPUTS, OUTPUTS
from tools.crash.chain.traffic import INPUT_IDS
from tools.crash.chain.workers import GROUP, INPUT, OUTPUT, WORKERS

SENDER, READER, COMMITTER = "sender", OUTPUTS, "committer"
TIMEOUT_S = 60.0
CLUSTER_NAME = "kafka-cluster"
TOPIC, GROUPS, IDS = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE

PERMISSIONS: list[tuple[str, AclOperation, ResourceType, str]] = [
    # A name with an asterisk at its end is a prefix.
    (SENDER, WRITE, TOPIC, "kept*"),
    (READER, READ, TOPIC, "kept*"),
    (READER, READ, TOPIC, OUTPUT),
    (INPUTS, WRITE, TOPIC, INPUT),
    (INPUTS, WRITE, IDS, f"{INPUT_IDS}*"),
    (WORKERS, READ, TOPIC, INPUT),
    (WORKERS, WRITE, TOPIC, OUTPUT),
    (WORKERS, READ, GROUPS, GROUP),
    (WORKERS, WRITE, IDS, "w*"),
    (COMMITTER, READ, TOPIC, "committed"),
    (COMMITTER, READ, GROUPS, "group-*"),
    (OBSERVER, DESCRIBE, ResourceType.BROKER, CLUSTER_NAME),
    (OBSERVER, READ, TOPIC, "*"),
    (OBSERVER, DESCRIBE, GROUPS, "*"),
    (OBSERVER, DESCRIBE, IDS, "*"),
]


def bindings() -> Iterator[AclBinding]:
    for name, operation, kind, resource in PERMISSIONS:
        is_prefix = resource.endswith("*") and resource != "*"
        yield AclBinding(
            kind,
            resource.removesuffix("*") if is_prefix else resource,
            ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL,
            f"User:CN={name}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )


def grant(bootstrap: str, security: Security) -> None:
    """Create the ACLs of a cluster with security."""
    if security is NO_SECURITY:
        return
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **security.client(ADMIN)})
    for future in admin.create_acls(list(bindings())).values():
        future.result(TIMEOUT_S)
    _verify_denied(bootstrap, security)


def _verify_denied(bootstrap: str, security: Security) -> None:
    """A client without permission to create a topic must be denied; otherwise nothing is enforced."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **security.client(OBSERVER)})
    try:
        admin.create_topics([NewTopic("forbidden", 1, 1)])["forbidden"].result(TIMEOUT_S)
    except KafkaException as denied:
        if denied.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return
        raise
    raise RuntimeError("a client created a topic without permission")
