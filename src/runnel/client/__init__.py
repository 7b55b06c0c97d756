"""A small Kafka client for the command line, the pipelines and the tests.

    async with Cluster("127.0.0.1:9092") as cluster, Producer(cluster) as producer:
        delivery = await producer.send_and_wait("orders", b"a cup of tea", key=b"anna")

`SyncClient` offers the same without an event loop.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runnel.client.accumulator import Delivery
    from runnel.client.admin import Admin
    from runnel.client.chunk import Message
    from runnel.client.cluster import Cluster
    from runnel.client.connection import Connection
    from runnel.client.errors import (
        AuthenticationFailed,
        BrokerError,
        ClientError,
        ConnectionLost,
        InvalidProperty,
        InvalidResponse,
        NoBrokerAvailable,
        TimedOut,
        TlsFailed,
        UnsupportedVersion,
    )
    from runnel.client.group_consumer import GroupConsumer
    from runnel.client.groups import Groups
    from runnel.client.producer import Producer
    from runnel.client.properties import ClientProperties
    from runnel.client.reader import Reader
    from runnel.client.sync import SyncClient
    from runnel.client.transactional import TransactionalProducer
    from runnel.client.transactions import Transactions

__all__ = [
    "Admin",
    "AuthenticationFailed",
    "BrokerError",
    "ClientError",
    "ClientProperties",
    "Cluster",
    "Connection",
    "ConnectionLost",
    "Delivery",
    "GroupConsumer",
    "Groups",
    "InvalidProperty",
    "InvalidResponse",
    "Message",
    "NoBrokerAvailable",
    "Producer",
    "Reader",
    "SyncClient",
    "TimedOut",
    "TlsFailed",
    "TransactionalProducer",
    "Transactions",
    "UnsupportedVersion",
]

_MODULES = {
    "ClientProperties": "properties",
    "TlsFailed": "errors",
    "InvalidProperty": "errors",
    "AuthenticationFailed": "errors",
    "Admin": "admin",
    "BrokerError": "errors",
    "ClientError": "errors",
    "Cluster": "cluster",
    "Connection": "connection",
    "ConnectionLost": "errors",
    "Delivery": "accumulator",
    "GroupConsumer": "group_consumer",
    "Groups": "groups",
    "Message": "chunk",
    "NoBrokerAvailable": "errors",
    "InvalidResponse": "errors",
    "UnsupportedVersion": "errors",
    "Producer": "producer",
    "Reader": "reader",
    "SyncClient": "sync",
    "TimedOut": "errors",
    "TransactionalProducer": "transactional",
    "Transactions": "transactions",
}


def __getattr__(name: str) -> object:
    # Imported on first use, so that a caller loads only the message modules that it needs.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
