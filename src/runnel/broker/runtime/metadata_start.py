"""Start of a node's metadata: format a new cluster, register the broker, open partitions."""

import asyncio
from typing import TYPE_CHECKING

from runnel.broker.runtime.metadata_follower import MetadataFollower
from runnel.broker.runtime.metadata_log import METADATA_PARTITION, MetadataLog
from runnel.controller.features import FIRST_LEVELS, METADATA_VERSION, SUPPORTED_FEATURES
from runnel.controller.image import BadMetadata, MetadataImage
from runnel.controller.snapshot import registration_record
from runnel.controller.unclean_start import closed_uncleanly
from runnel.controller.values import BrokerRegistration, Endpoint
from runnel.model.ids import id_text
from runnel.schemas.metadata import (
    ClusterRecord,
    FeatureLevelRecord,
    MetadataRecord,
)

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker


async def start_metadata(broker: "Broker", metadata: MetadataLog) -> MetadataFollower:
    """Attach `metadata` to the broker and apply its image.

    The broker must know its advertised host and port by now, and not serve before this returns.
    """
    _check_ownership(broker, metadata)
    await metadata.make_durable()
    broker.metadata = metadata
    # Before serving: new records must not have the epoch of records that may have been lost.
    image, disk = metadata.image, broker.disk
    broker.elections.require(closed_uncleanly(image, broker.node_id, disk.was_closed_cleanly))
    await broker.elections.run()
    follower = MetadataFollower(broker, image, metadata.settings)
    follower.remove_orphaned_logs(metadata.removed)
    for _ in follower.open_all():
        await asyncio.sleep(0)
    await _show_all_that_is_stored(broker)
    metadata.follow(follower)
    broker.elections.start()
    records = _founding_records(broker, image)
    if records:
        await metadata.submit(records)
    broker.cluster_id = image.cluster_id
    return follower


async def _show_all_that_is_stored(broker: "Broker") -> None:
    """Make records written before a crash durable and visible, so that the log end does not decrease."""
    hidden = [
        broker.disk.sync(partition.log)
        for partition in broker.partitions.values()
        if partition.high_watermark < partition.log.written_offset
    ]
    # A failed sync is reported and retried by its log; the other partitions serve.
    await asyncio.gather(*hidden, return_exceptions=True)


def _check_ownership(broker: "Broker", metadata: MetadataLog) -> None:
    folder = broker.disk.directory_path()
    if metadata.is_new:
        orphans = [partition for partition in broker.disk.known_logs() if partition != METADATA_PARTITION]
        if orphans:
            raise BadMetadata(
                f"{folder} holds {len(orphans)} partitions but no metadata that describes them; "
                f"restore the folder {METADATA_PARTITION} or choose another data folder"
            )
        return
    owners = sorted(metadata.image.brokers)
    if owners and broker.node_id not in owners:
        raise BadMetadata(
            f"{folder} belongs to node {owners[0]}, and this is node {broker.node_id}: "
            f"start it with node.id={owners[0]} or choose another data folder"
        )


def _founding_records(broker: "Broker", image: MetadataImage) -> list[MetadataRecord]:
    """Records that are missing in the log: cluster id, features and broker registration."""
    records: list[MetadataRecord] = []
    if not image.cluster_id:
        records.append(ClusterRecord(id_text(broker.entropy.id_bytes())))
    if METADATA_VERSION not in image.features:
        records += [FeatureLevelRecord(name, level) for name, level in FIRST_LEVELS.items()]
    known = image.brokers.get(broker.node_id)
    registration = BrokerRegistration(
        id=broker.node_id,
        epoch=known.epoch if known else image.version,
        incarnation_id=known.incarnation_id if known else broker.entropy.id_bytes(),
        endpoints=(Endpoint(broker.listener, broker.host, broker.port),),
        features=tuple((name, *levels) for name, levels in SUPPORTED_FEATURES.items()),
        rack=broker.rack,
        is_fenced=False,
        is_stopping=False,
        directories=(broker.disk.directory_id(),),
    )
    if registration != known:
        records.append(registration_record(registration))
    return records
