"""Start and stop of a node over its ports; shared by simulation and production.

start_quorum   the metadata log, the quorum; from now on other controllers must reach this node
start_broker   the image, registration, partitions, coordinators, unfenced; then it may serve clients
"""

import asyncio
from contextlib import AsyncExitStack

from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.client_quotas import ClientQuotas
from runnel.broker.runtime.controller_duties import ControllerDuties
from runnel.broker.runtime.group_coordinator import GroupCoordinator
from runnel.broker.runtime.lifecycle import BrokerLifecycle, register_controller
from runnel.broker.runtime.metadata_follower import MetadataFollower
from runnel.broker.runtime.metadata_log import MetadataLog
from runnel.broker.runtime.quorum_log import METADATA_PARTITION, QuorumLog
from runnel.broker.runtime.quorum_start import membership_of
from runnel.broker.runtime.transaction_coordinator import TransactionCoordinator
from runnel.controller.image import BadMetadata
from runnel.controller.unclean_start import closed_uncleanly
from runnel.model.ids import id_text


async def start_quorum(broker: Broker, stack: AsyncExitStack) -> None:
    """Load what this node has of the metadata, and take part in the quorum; the stack reverts it.

    The node must know its advertised addresses by now.
    """
    _check_folder(broker)
    broker.quorum = quorum = await QuorumLog.open(broker)
    broker.metadata = metadata = MetadataLog(quorum, broker.disk, broker.clock, broker.settings)
    metadata.events = broker.events
    await metadata.load()
    broker.gates.quotas = quotas = ClientQuotas(broker)
    metadata.on_quotas_changed = quotas.changed
    quotas.changed()
    if broker.settings["authorizer.class.name"]:
        await _start_authorizer(broker, stack)
    broker.duties = duties = ControllerDuties(broker)
    stack.callback(duties.close)
    stack.push_async_callback(metadata.close)
    stack.push_async_callback(quorum.close)
    quorum.start(metadata)
    if broker.controller_endpoints:
        stack.push_async_callback(_cancelled, asyncio.create_task(register_controller(broker)))
        if not metadata.is_sole_voter:
            stack.push_async_callback(_cancelled, asyncio.create_task(_build_index(metadata)))


async def start_broker(broker: Broker, stack: AsyncExitStack) -> None:
    """Register, open partitions, load coordinators; the stack reverts it.

    Returns once the controller lets this broker serve. Raises BadMetadata and RegistrationRefused.
    """
    metadata = broker.metadata
    await metadata.caught_up()
    metadata.acls_loaded()
    _check_ownership(broker)
    _identify(broker)
    lifecycle = broker.lifecycle = _lifecycle(broker)
    stack.push_async_callback(lifecycle.close)
    broker.lost_records_watchers.append(lifecycle.lost_records)
    await lifecycle.register()
    if _is_alone(broker):
        # Before serving: new records must not have the epoch of records that may have been lost.
        image, disk = metadata.image, broker.disk
        broker.elections.require(closed_uncleanly(image, broker.node_id, disk.was_closed_cleanly))
        await broker.elections.run()
    stack.push_async_callback(broker.replication.close)
    follower = MetadataFollower(broker, metadata.image, metadata.settings)
    follower.remove_orphaned_logs(metadata.removed)
    await metadata.follow(follower)
    await _show_all_that_is_stored(broker)
    broker.elections.start()
    broker.groups = GroupCoordinator(broker)
    follower.when_topics_are_removed(broker.groups.topics_deleted)
    broker.transactions = TransactionCoordinator(broker)
    follower.when_topics_are_removed(broker.transactions.topics_deleted)
    follower.when_features_change(broker.transactions.features_changed)
    # A resumed transaction may write markers to __consumer_offsets: start its shards first.
    broker.groups.start()
    broker.transactions.start()
    await broker.replication.damage_reported()
    await lifecycle.unfence()
    stack.push_async_callback(broker.verification.close)
    broker.verification.start()


async def leave_cluster(broker: Broker) -> None:
    """Before a stop: let other brokers lead this one's partitions. A cluster of one has no other to ask."""
    if _is_alone(broker):
        await broker.lifecycle.close()
    else:
        await broker.lifecycle.shut_down()


def _lifecycle(broker: Broker) -> BrokerLifecycle:
    """A new incarnation; a cluster of one broker stays the same, so that its restart changes no partition."""
    known = broker.metadata.image.brokers.get(broker.node_id)
    if known is not None and _is_alone(broker):
        # After a controlled shutdown, as of Apache Kafka, only a new incarnation may serve again.
        incarnation_id = broker.entropy.id_bytes() if known.is_stopping else known.incarnation_id
        return BrokerLifecycle(broker, incarnation_id, known.epoch)
    return BrokerLifecycle(broker, broker.entropy.id_bytes(), broker.disk.previous_broker_epoch)


def _is_alone(broker: Broker) -> bool:
    """Is this node the whole cluster: the only voter, and the only broker?"""
    is_only_voter = set(broker.quorum.voters.ids) == {broker.node_id}
    return is_only_voter and broker.metadata.image.brokers.keys() <= {broker.node_id}


async def _start_authorizer(broker: Broker, stack: AsyncExitStack) -> None:
    """Authorize requests from the first one on; until the metadata is known, only those of super users."""
    from runnel.broker.runtime.acl_authorizer import AclAuthorizer

    authorizer = AclAuthorizer.of(broker.settings, is_audited=broker.gates.audit.is_enabled)
    await broker.metadata.watch_acls(authorizer)
    broker.gates.authorizer = authorizer
    stack.push_async_callback(_cancelled, asyncio.create_task(_acls_loaded(broker.metadata)))


async def _acls_loaded(metadata: MetadataLog) -> None:
    await metadata.caught_up()
    metadata.acls_loaded()


async def _build_index(metadata: MetadataLog) -> None:
    """In the background, so that this node finds the partitions of a failed broker when it is elected."""
    await metadata.caught_up()
    for _ in metadata.image.build_index():
        await asyncio.sleep(0)


async def _cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _check_folder(broker: Broker) -> None:
    """Refuse partitions without the metadata that describes them; a new log would delete them.

    A node that cannot vote begins no new log: it fetches that of its cluster.
    """
    logs = set(broker.disk.known_logs())
    if logs and METADATA_PARTITION not in logs and membership_of(broker).can_vote:
        raise BadMetadata(
            f"{broker.disk.directory_path()} holds {len(logs)} partitions but no metadata that describes "
            f"them; restore the folder {METADATA_PARTITION} or choose another data folder"
        )


def _identify(broker: Broker) -> None:
    """Store in the data directory to which cluster it belongs; earlier releases stored that in the log."""
    if not broker.cluster_id:
        known = broker.disk.identity.cluster_id or broker.metadata.image.cluster_id
        broker.cluster_id = known or id_text(broker.entropy.id_bytes())
    broker.disk.identify(broker.cluster_id, broker.node_id)
    broker.metadata.replace_private_records()


def _check_ownership(broker: Broker) -> None:
    owners = sorted(broker.metadata.image.brokers)
    if set(broker.quorum.voters.ids) == {broker.node_id} and len(owners) == 1 and owners != [broker.node_id]:
        raise BadMetadata(
            f"{broker.disk.directory_path()} belongs to node {owners[0]}, and this is node "
            f"{broker.node_id}: start it with node.id={owners[0]} or choose another data folder"
        )


async def _show_all_that_is_stored(broker: Broker) -> None:
    """Make records written before a crash durable and visible, so that the log end does not decrease."""
    hidden = [
        broker.disk.sync(partition.log)
        for partition in broker.partitions.values()
        if partition.is_leader and partition.high_watermark < partition.log.written_offset
    ]
    # A failed sync is reported and retried by its log; the other partitions serve.
    await asyncio.gather(*hidden, return_exceptions=True)
