"""Start and stop of a broker over its ports; shared by simulation and production."""

from contextlib import AsyncExitStack

from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.group_coordinator import GroupCoordinator
from runnel.broker.runtime.metadata_log import MetadataLog
from runnel.broker.runtime.metadata_start import start_metadata
from runnel.broker.runtime.transaction_coordinator import TransactionCoordinator


async def start_broker(broker: Broker, stack: AsyncExitStack) -> None:
    """Replay metadata, open partitions, load coordinators; the stack reverts it.

    The broker must know its advertised host and port by now, and not serve before this returns.
    """
    metadata = await MetadataLog.open(broker.disk, broker.clock, broker.settings, broker.turn, broker.node_id)
    follower = await start_metadata(broker, metadata)
    stack.push_async_callback(metadata.close)
    broker.groups = GroupCoordinator(broker)
    follower.when_topics_are_removed(broker.groups.topics_deleted)
    broker.transactions = TransactionCoordinator(broker)
    follower.when_topics_are_removed(broker.transactions.topics_deleted)
    follower.when_features_change(broker.transactions.features_changed)
    # A resumed transaction may write markers to __consumer_offsets: start its shards first.
    broker.groups.start()
    broker.transactions.start()
