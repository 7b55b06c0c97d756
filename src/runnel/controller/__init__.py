"""Cluster metadata: requests become records, records become the image. No I/O here.

The active controller decides against the image ahead of the log. A decision changes nothing but the sessions
of brokers; replaying its records changes the image. A `ControllerResult` is one atomic batch of records and a
response; `Steps` yield several batches (see `steps`).

when a controller becomes active
    bootstrap.bootstrap_records(settings)                              the first records of a new cluster
    bootstrap.takeover_records(image, has_open_transaction)            the first records of a new controller
    image.build_index()                                                in steps; copies have the index too
    sessions.activated(image.brokers.values(), now_ms, last_contact_ms)  BrokerSessions(timeout_ms)

requests of nodes
    registrations.register_broker(image, settings, sessions, request, identity, now_ms)       Steps
    registrations.remove_broker(image, settings, sessions, request)                           Steps
    registrations.decide_controller_registration(image, request)
    broker_heartbeats.broker_heartbeat(image, settings, sessions, request, now_ms)            Steps
    alter_partition.alter_partitions(image, settings, request, api_version)                   Steps
    directories.assign_replicas_to_dirs(image, settings, request)                             Steps
    producer_ids.decide_allocate_producer_ids(image, request)

facts and timers
    sessions.contacted(broker_id, epoch, now_ms)                       a heartbeat arrived
    sessions.connection_lost(broker_id, now_ms, within_ms)             a broker's connection was closed
    sessions.refused(broker_id, since_ms, now_ms)                      nothing listens at its address
    broker_heartbeats.fence_expired_broker(image, settings, sessions, now_ms)                 Steps
        at sessions.next_expiry_ms(), again until it returns None

    elections.balance_leaders(image, settings)                         every few minutes          Steps
    elections.elect_unclean_leaders(image, settings)                   every few minutes          Steps

requests of clients
    feature_changes.decide_update_features(image, settings, request, api_version, quorum)
    feature_changes.new_kraft_version(request, quorum)                 what the quorum has to change
    elections.elect_leaders(image, settings, request)                                         Steps
    reassignments.decide_reassignments(image, settings, request)

record_versions.encode_records(records, image.metadata_level) encodes what is written.
"""
