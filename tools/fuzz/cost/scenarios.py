"""The brokers that are measured: one that is open, one with ACLs and quotas, and an active controller."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path

from runnel.broker.apis.handlers import BROKER_APIS, CONTROLLER_APIS, FETCH_KEY
from runnel.client.connection import Connection
from runnel.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from runnel.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from runnel.security.acl import CLUSTER_NAME, Operation, ResourceType
from runnel.security.quotas.entities import CLIENT_KEYS
from tools.fuzz.cost.population import SETTINGS, Population

HOST = "127.0.0.1"
ADMINISTRATOR, CLIENT = "User:admin", "User:ANONYMOUS"
DENY, ALLOW = 2, 3
DENIED = "denied-"
LITERAL, PREFIXED = 3, 4
LARGE_QUOTA = 2.0**40
CHANGES_PER_REQUEST = 1_000
LAST = (19, 37, 42, 47, 20)
"""APIs that create or delete what the others need."""


class Scenario(StrEnum):
    """What is measured; its name is a heading of the page."""

    OPEN = "A broker that permits everything"
    SECURED = "A broker with ACLs, quotas and an audit log"
    CONTROLLER = "Requests between nodes, to the active controller"

    @property
    def api_keys(self) -> list[int]:
        if self is Scenario.CONTROLLER:
            return sorted((CONTROLLER_APIS - BROKER_APIS) | {FETCH_KEY})
        return sorted(BROKER_APIS, key=lambda key: (LAST.index(key) + 1 if key in LAST else 0, key))

    def settings(self, data_dir: Path, port: int, controller_port: int) -> dict[str, str]:
        """The settings of a broker that listens on these ports."""
        settings = {**SETTINGS, "log.dirs": str(data_dir), "listeners": f"PLAINTEXT://{HOST}:{port}"}
        match self:
            case Scenario.SECURED:
                settings |= {**AUTHORIZER, "audit.log.file": str(data_dir.parent / "audit.log")}
            case Scenario.CONTROLLER:
                settings |= {
                    "process.roles": "broker,controller",
                    "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
                    "controller.quorum.voters": f"1@{HOST}:{controller_port}",
                    "controller.listener.names": "CONTROLLER",
                    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                }
        return settings


AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": ADMINISTRATOR,
    "audit.log.allowed": "all",
}


async def add_security(port: int, population: Population) -> None:
    """Create ACLs, by which clients may use half of what there is, and quotas, which do not throttle them."""
    connection = await Connection.open(HOST, port, timeout_s=60)
    acls = list(_acls(population))
    for start in range(0, len(acls), CHANGES_PER_REQUEST):
        request = CreateAclsRequest(acls[start : start + CHANGES_PER_REQUEST])
        created = await connection.send(request, CreateAclsResponse, timeout_s=120)
        assert not any(result.error_code for result in created.results), created.results[0].error_message
    ops = [OpData(key, LARGE_QUOTA) for key in CLIENT_KEYS]
    names = [CLIENT.removeprefix("User:"), *(f"user-{number}" for number in range(population.quotas - 1))]
    for start in range(0, len(names), CHANGES_PER_REQUEST):
        chunk = names[start : start + CHANGES_PER_REQUEST]
        entries = [EntryData([EntityData("user", name)], ops) for name in chunk]
        altered = await connection.send(
            AlterClientQuotasRequest(entries), AlterClientQuotasResponse, timeout_s=120
        )
        assert not any(entry.error_code for entry in altered.entries), altered.entries[0].error_message
    await connection.close()


def _acls(population: Population) -> Iterator[AclCreation]:
    """Of the client, and of other users up to the number that there are to be.

    Half of them permit the client nothing, as a prefix is denied: InitProducerId has to look at all of these.
    """
    cluster = (ResourceType.CLUSTER, CLUSTER_NAME, LITERAL, CLIENT, "*")
    yield AclCreation(*cluster, Operation.IDEMPOTENT_WRITE, DENY)
    yield AclCreation(ResourceType.TOPIC, DENIED, PREFIXED, CLIENT, "*", Operation.WRITE, DENY)
    for number in range(population.acls // 2):
        yield AclCreation(
            ResourceType.TOPIC, f"{DENIED}{number}", LITERAL, CLIENT, "*", Operation.WRITE, ALLOW
        )
    permitted = [
        *_halves(ResourceType.TOPIC, population.topics),
        *_halves(ResourceType.GROUP, population.group_ids),
        *_halves(ResourceType.TRANSACTIONAL_ID, population.transactional_id_names),
        (ResourceType.CLUSTER, CLUSTER_NAME),
    ]
    for resource_type, name in permitted:
        yield AclCreation(resource_type, name, LITERAL, CLIENT, "*", Operation.ALL, ALLOW)
    for number in range(population.acls // 2 - len(permitted)):
        name = population.topics[number % len(population.topics)]
        pattern, text = (PREFIXED, name[: number % 8 + 1]) if number % 4 == 0 else (LITERAL, name)
        yield AclCreation(
            ResourceType.TOPIC, text, pattern, f"User:user-{number}", "*", Operation.READ, ALLOW
        )


def _halves(resource_type: ResourceType, names: list[str]) -> Iterable[tuple[ResourceType, str]]:
    return [(resource_type, name) for name in names[::2]]
