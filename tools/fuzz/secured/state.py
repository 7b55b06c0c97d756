"""What clients without permissions must neither change nor see."""

import hashlib
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from runnel.client.cluster import Cluster
from runnel.client.sync import SyncClient
from runnel.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from runnel.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from runnel.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from runnel.schemas.metadata import NoOpRecord
from tools.cluster.metadata_records import FOLDER, records
from tools.fuzz.samples import TOPIC
from tools.fuzz.secured.broker import SCRAM_PASSWORD, SCRAM_USER, SecuredBroker

TIMEOUT_S = 60
HIDDEN_TOPIC, HIDDEN_GROUP, HIDDEN_USER = "vault-topic", "vault-group", "vault-user"
HIDDEN_VALUE = b"vault-record "
HIDDEN_RETENTION_MS = "86400123"
SECRETS = (
    HIDDEN_TOPIC.encode(),
    HIDDEN_GROUP.encode(),
    HIDDEN_USER.encode(),
    HIDDEN_VALUE,
    HIDDEN_RETENTION_MS.encode(),
)
"""No frame contains them: a response that does shows what its client may not see."""


def populate(broker: SecuredBroker) -> bytes:
    """Topics with records, groups, ACLs, SCRAM users, quotas and a transactional id; the id of the topic."""
    admin = AdminClient(broker.admin_config())
    hidden = NewTopic(HIDDEN_TOPIC, 2, 1, config={"retention.ms": HIDDEN_RETENTION_MS})
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    created = [
        *admin.create_topics([NewTopic(TOPIC, 2, 1), hidden]).values(),
        *admin.create_acls([_acl()]).values(),
        *admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion(SCRAM_USER, scram, SCRAM_PASSWORD.encode()),
                UserScramCredentialUpsertion(HIDDEN_USER, scram, b"hidden"),
            ]
        ).values(),
    ]
    for each in created:
        each.result(TIMEOUT_S)
    producer = Producer({**broker.admin_config(), "transactional.id": TOPIC})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for number in range(100):
        producer.produce((TOPIC, HIDDEN_TOPIC)[number & 1], HIDDEN_VALUE * 20)
    producer.commit_transaction(TIMEOUT_S)
    for group in (TOPIC, HIDDEN_GROUP):
        offsets = ConsumerGroupTopicPartitions(group, [TopicPartition(TOPIC, 0, 7)])
        admin.alter_consumer_group_offsets([offsets])[group].result(TIMEOUT_S)
    with broker.admin() as client:
        client.run(_set_quota)
        return client.run(_topic_id)


def _acl() -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        HIDDEN_TOPIC,
        ResourcePatternType.LITERAL,
        f"User:{HIDDEN_USER}",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )


async def _set_quota(cluster: Cluster) -> None:
    quota = EntryData([EntityData("user", HIDDEN_USER)], [OpData("producer_byte_rate", 1e9)])
    response = await cluster.send_to_any(AlterClientQuotasRequest([quota]), AlterClientQuotasResponse)
    assert response.entries[0].error_code == 0, response


async def _topic_id(cluster: Cluster) -> bytes:
    return (await cluster.topic(TOPIC)).topic_id


def fingerprint(client: SyncClient, data: Path) -> dict[str, object]:
    """All that is stored, and the groups and transactions in memory."""
    logs = {
        str(path.relative_to(data)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(data.glob("*/*.log"))
        if path.parent.name != FOLDER
    }
    decided = [repr(record) for _, _, record in records(data / FOLDER) if not isinstance(record, NoOpRecord)]
    return {"logs": logs, "metadata records": decided, **client.run(_in_memory)}


async def _in_memory(cluster: Cluster) -> dict[str, object]:
    groups = await cluster.send_to_any(ListGroupsRequest(), ListGroupsResponse)
    transactions = await cluster.send_to_any(ListTransactionsRequest(), ListTransactionsResponse)
    return {
        "groups": sorted(map(repr, groups.groups)),
        "transactions": sorted(map(repr, transactions.transaction_states)),
    }


def changed(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """What is different."""
    found = []
    for name, value in before.items():
        other = after[name]
        if value == other:
            continue
        if isinstance(value, list) and isinstance(other, list):
            found += [f"new in {name}: {each[:200]}" for each in other[len(value) :][:5]]
        else:
            found.append(f"{name} changed: {str(value)[:300]} → {str(other)[:300]}")
    return found
