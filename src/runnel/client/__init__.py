"""A small Kafka client: for the command line, the tests, and the rooms that talk to brokers as a client does.

    async with Cluster("127.0.0.1:9092") as cluster, Producer(cluster) as producer:
        delivery = await producer.send_and_wait("orders", b"a cup of tea", key=b"anna")

Without an event loop, `runnel.client.sync.SyncClient` has the same in a handful of plain verbs.
"""

from runnel.client.accumulator import Delivery
from runnel.client.admin import Admin
from runnel.client.chunk import Message
from runnel.client.cluster import Cluster
from runnel.client.connection import Connection
from runnel.client.errors import (
    BrokerRefused,
    ClientError,
    ConnectionLost,
    NoBroker,
    NotKafka,
    NotSpoken,
    TimedOut,
)
from runnel.client.group_consumer import GroupConsumer
from runnel.client.groups import Groups
from runnel.client.producer import Producer
from runnel.client.reader import Reader

__all__ = [
    "Admin",
    "BrokerRefused",
    "ClientError",
    "Cluster",
    "Connection",
    "ConnectionLost",
    "Delivery",
    "GroupConsumer",
    "Groups",
    "Message",
    "NoBroker",
    "NotKafka",
    "NotSpoken",
    "Producer",
    "Reader",
    "TimedOut",
]
