"""A broker in this process: wiring, start and stop.

start: data directory → metadata → partitions → coordinators → accept        stop: in reverse order
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.pipeline import Pipeline
from runnel.broker.runtime.quorum_log import METADATA_PARTITION
from runnel.broker.runtime.running import leave_cluster, start_broker, start_quorum
from runnel.controller.config_broker_encryption import (
    MASTER_KEY_COMMAND,
    MASTER_KEY_FILE,
    MASTER_KEY_REFRESH_MS,
)
from runnel.controller.config_types import parse_address_counts
from runnel.controller.settings import Settings
from runnel.disk.cleaner import Cleaner
from runnel.disk.data_directory import DataDirectory
from runnel.disk.identity import check_identity, new_id, read_identity
from runnel.disk.os_files import OsFiles
from runnel.disk.upkeep import UpkeepIntervals
from runnel.disk.workers import LoopWorkers
from runnel.model.ids import id_text
from runnel.model.limits import RECEIVE_MEMORY_BYTES_MAX
from runnel.net.admission import ListenerLimits
from runnel.net.peers import TcpPeers
from runnel.ports.disk import BadDirectory
from runnel.security.exposure import Severity, findings
from runnel.server.addresses import Address
from runnel.server.admin import Admin
from runnel.server.exposure_facts import facts_of
from runnel.server.layers import BadSettings
from runnel.server.listeners import Listeners
from runnel.server.loop_probe import LoopProbe
from runnel.server.node_metrics import NodeMetrics
from runnel.server.permissions import open_folder
from runnel.server.roles import data_directory, roles_of
from runnel.server.shells import LoopTimers, SystemClock, SystemEntropy

if TYPE_CHECKING:
    from runnel.broker.runtime.audit_topic import AuditTopic
    from runnel.disk.keyring import Keyring
    from runnel.security.sasl_login import SaslLogin
    from runnel.server.node_tls import NodeTls
    from runnel.server.sasl_settings import OwnIdentity, SaslSettings

WRITE_THREADS = 2
"""Large writes are copies into the page cache with the GIL released: two threads keep two cores busy."""

READ_THREADS = 2
"""Readers of data that is not in the page cache: more would only queue at the disk instead."""

SYNC_THREADS = 4
"""Concurrent fdatasync calls; more would queue in the kernel."""

UPKEEP_INTERVAL_MS = 500
"""Interval between checks for due maintenance work."""

log = logging.getLogger("runnel.server")


class Node:
    """A broker; `async with Node({...}) as node` serves at `node.address` until the block ends."""

    def __init__(self, static: Mapping[str, str] | None = None) -> None:
        """Validate the settings without side effects. Raises BadSettings or BadConfig."""
        self.settings = Settings(static)
        for name in self.settings.ignored:
            log.warning("Kafka setting %s has no effect in Runnel", name)
        self.data_dir = data_directory(self.settings)
        self._has_master_keys = _needs_keyring(self.settings)
        self.roles = roles_of(self.settings)
        self.sasl: Mapping[str, SaslSettings] = {}
        """How clients authenticate, by listener."""
        self._identities: Mapping[str, OwnIdentity] = {}
        if any(protocol.uses_sasl for protocol in self.roles.protocols.values()):
            from runnel.server.sasl_settings import own_identities, sasl_settings

            self.sasl = sasl_settings(self.settings, self.roles)
            self._identities = own_identities(self.settings, self.roles)
        if self.settings.text("delegation.token.secret.key"):
            from runnel.server.sasl_settings import check_token_secrets

            check_token_secrets(self.settings, self.roles)
        if self.settings.text("audit.log.topic") and not self.roles.is_broker:
            raise BadSettings(
                "audit.log.topic is set on a node that is only a controller and connects to no broker: set "
                "audit.log.file instead"
            )
        for warning in self.roles.warnings():
            log.warning("%s", warning)
        self._stack = AsyncExitStack()
        self._listeners: Listeners | None = None
        self._broker: Broker | None = None
        self._disk: DataDirectory | None = None
        self._abrupt_ends: list[Callable[[], None]] = []
        """What `disconnect` does."""
        self._cleaner: Cleaner | None = None
        self._tls: NodeTls | None = None
        self._admin: Admin | None = None
        self._workers: dict[str, LoopWorkers] = {}
        self._audit_topic: AuditTopic | None = None
        self._tls_reloads: set[asyncio.Task[None]] = set()
        self.settings.subscribe(self._settings_changed)

    @property
    def _main_listener(self) -> Address:
        """The first listener for clients; on a node that is only a controller, that of controllers."""
        return (*self.roles.broker_listeners, *self.roles.controller_listeners)[0]

    @property
    def port(self) -> int:
        """The port of the first listener for clients, known once started."""
        return self.ports[self._main_listener.name]

    @property
    def ports(self) -> dict[str, int]:
        """The ports of all listeners by name, known once started."""
        listeners = self.roles.listeners if self._listeners is None else self._listeners.bound.values()
        return {address.name: address.port for address in listeners}

    @property
    def admin_address(self) -> str | None:
        """The address of the admin listener, as host:port; None if it is off."""
        addresses = () if self._broker is None else self._broker.admin_addresses
        return addresses[0] if addresses else None

    @property
    def address(self) -> Address:
        """The advertised address of the first listener for clients, known once started."""
        main = self._main_listener
        return main if self._listeners is None else self._listeners.advertised(main)

    @property
    def protocol(self) -> str:
        """The security protocol of the first listener for clients."""
        return self.roles.protocols[self._main_listener.name].name

    @property
    def bootstrap_servers(self) -> str:
        """Value for a client's bootstrap.servers."""
        address = self.address
        host = f"[{address.host}]" if ":" in address.host else address.host
        return f"{host}:{address.port}"

    async def start(self) -> None:
        """Start; on return the broker accepts requests. On failure everything opened is closed again."""
        self._report_exposure()
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()

    async def _start(self, stack: AsyncExitStack) -> None:
        clock, entropy, roles = SystemClock(), SystemEntropy(), self.roles
        self._check_directory()
        tls = self._load_tls(stack)
        keyring = await self._keyring() if self._has_master_keys else None
        disk = self._open_disk(stack, clock, entropy, keyring)
        peers, controller_peers = self._new_peers(stack)
        self._broker = broker = self._new_broker(disk, peers, clock, entropy)
        broker.controller_peers = controller_peers
        broker.validate_configs = None if tls is None else tls.refusal
        if self.settings["authorizer.class.name"]:
            self._prepare_authorization(broker, stack)
        pipeline = Pipeline(broker)
        servers = {} if tls is None else tls.servers
        self._listeners = listeners = Listeners(roles, self._limits(), pipeline, servers)
        if self.sasl:
            await self._authenticate(broker, listeners, stack)
        stack.push_async_callback(listeners.close)
        self._disk, self._abrupt_ends = disk, [listeners.abort, peers.close, controller_peers.close]
        listeners.bind()
        self._advertise(broker, listeners)
        admin = await self._start_admin(broker, disk, listeners, stack)
        broker.cluster_id = await self._cluster_id(broker, listeners)
        self._prepare_directory(broker)
        await start_quorum(broker, stack)
        admin.quorum_started()
        listeners.serve(pipeline)
        listeners.hold_connections(lambda host: broker.gates.quotas.connection_hold_ms(host))
        listeners.accept(roles.controller_listeners)
        if roles.has_other_controllers:
            self._watch_quorum(broker, stack)
        if roles.is_broker:
            await start_broker(broker, stack)
            admin.broker_started()
        stack.push_async_callback(_ended, asyncio.create_task(_maintain(disk, clock)))
        if keyring is not None:
            stack.push_async_callback(_ended, asyncio.create_task(self._refresh_master_keys(disk)))
        self._start_audit_topic(stack)
        await self._serve_clients(broker, listeners, stack)
        stack.callback(LoopProbe(broker.loop_pauses).close)
        admin.started()
        # Before anything else ends.
        stack.callback(admin.stopping)

    async def _serve_clients(self, broker: Broker, listeners: Listeners, stack: AsyncExitStack) -> None:
        """Accept the connections of clients; the stack ends that in the order of a clean shutdown."""
        is_broker = self.roles.is_broker
        stack.push_async_callback(listeners.close)
        if is_broker:
            # Pending JoinGroup and SyncGroup requests are completed before the listeners drain.
            stack.callback(broker.groups.stop)
            stack.callback(broker.transactions.stop)
        # With the certificates of dynamic configs, which are known now.
        await asyncio.gather(*self._tls_reloads)
        listeners.accept(self.roles.broker_listeners)
        # Leadership is handed over while the other controllers can still reach this one.
        stack.push_async_callback(broker.quorum.close)
        if is_broker:
            stack.push_async_callback(leave_cluster, broker)
        # While this node leads its partitions.
        stack.push_async_callback(self._flush_audit_topic)

    async def _start_admin(
        self, broker: Broker, disk: DataDirectory, listeners: Listeners, stack: AsyncExitStack
    ) -> Admin:
        """Serve health and metrics from now on; those of the broker are added when it has them."""
        self._admin = admin = Admin(self.settings, self.roles, broker, self.data_dir)
        self._abrupt_ends.append(admin.abort)
        await admin.start(stack)
        tls = self._tls
        admin.registry.add(
            NodeMetrics(
                admin.host,
                broker.loop_pauses,
                disk,
                self._workers,
                listeners,
                lambda: {} if tls is None else tls.expiries,
            )
        )
        return admin

    def _advertise(self, broker: Broker, listeners: Listeners) -> None:
        """The ports are known: so are the addresses of this broker."""
        broker.endpoints = listeners.endpoints(self.roles.broker_listeners)
        broker.controller_endpoints = listeners.endpoints(self.roles.controller_listeners)
        main = next(iter(broker.endpoints + broker.controller_endpoints))
        main = next((each for each in broker.endpoints if each.name == broker.listener), main)
        broker.host, broker.port = main.host, main.port

    def _load_tls(self, stack: AsyncExitStack) -> "NodeTls | None":
        if not any(protocol.uses_tls for protocol in self.roles.protocols.values()):
            return None
        from runnel.server.node_tls import NodeTls

        self._tls = tls = NodeTls(self.roles, self.settings)
        tls.load()
        stack.push_async_callback(_ended, asyncio.create_task(tls.watch()))
        return tls

    def _new_peers(self, stack: AsyncExitStack) -> tuple[TcpPeers, TcpPeers]:
        """Connections to other brokers, and to controllers."""
        roles, tls = self.roles, self._tls
        names = (roles.inter_broker_listener, next(iter(roles.controller_listener_names), ""))
        peers = tuple(
            TcpPeers(tls=None if tls is None else tls.client(name), login=self._login(name)) for name in names
        )
        for each in peers:
            stack.callback(each.close)
        return peers[0], peers[1]

    def _login(self, listener: str) -> "Callable[[], SaslLogin] | None":
        """How this node authenticates at the listener of another; None if that does not use SASL."""
        identity = self._identities.get(listener)
        if identity is None:
            return None
        from runnel.server.sasl import new_login

        return partial(new_login, identity)

    async def reload(self) -> None:
        """Read key material again, as it may have changed. What cannot be read stays as it is."""
        if self._tls is not None:
            await self._tls.reload()

    def _new_broker(
        self, disk: DataDirectory, peers: TcpPeers, clock: SystemClock, entropy: SystemEntropy
    ) -> Broker:
        """A broker that does not know its addresses and its cluster yet."""
        return Broker(
            node_id=self.roles.node_id,
            cluster_id="",
            host="",
            port=0,
            clock=clock,
            timers=LoopTimers(asyncio.get_running_loop()),
            disk=disk,
            entropy=entropy,
            settings=self.settings,
            rack=self.settings.text("broker.rack"),
            listener=self.roles.inter_broker_listener,
            controller_listeners=frozenset(self.roles.controller_listener_names),
            peers=peers,
        )

    async def _authenticate(self, broker: Broker, listeners: Listeners, stack: AsyncExitStack) -> None:
        """Let the listeners with SASL authenticate their clients."""
        from runnel.broker.runtime.sasl import SaslGate
        from runnel.server.sasl import sasl_listeners

        broker.gates.authenticator = SaslGate()
        for name, sasl in (await sasl_listeners(broker, self.sasl, stack)).items():
            listeners.authenticate(name, sasl.open)

    def _prepare_authorization(self, broker: Broker, stack: AsyncExitStack) -> None:
        from runnel.server.audit_log import AuditLog

        settings = self.settings
        audit = AuditLog.of(settings, broker.clock.now_ms)
        if audit is None:
            return
        stack.callback(audit.close)
        broker.gates.audit = audit
        if topic := settings.text("audit.log.topic"):
            from runnel.broker.runtime.audit_topic import AuditTopic

            queue_max = settings.int("audit.log.queue.max")
            audit.topic = self._audit_topic = AuditTopic(broker, topic, queue_max)

    def _report_exposure(self) -> None:
        """Log the findings of severity high."""
        for finding in findings(facts_of(self.settings, self.roles, time.time())):
            if finding.severity is Severity.HIGH:
                where = f"listener {finding.listener}: " if finding.listener else ""
                log.warning("%s%s %s", where, finding.consequence, finding.remedy)

    def _start_audit_topic(self, stack: AsyncExitStack) -> None:
        if self._audit_topic is not None:
            stack.push_async_callback(self._audit_topic.close)
            self._audit_topic.start()

    async def _flush_audit_topic(self) -> None:
        if self._audit_topic is not None:
            await self._audit_topic.flush()

    def _watch_quorum(self, broker: Broker, stack: AsyncExitStack) -> None:
        from runnel.server.quorum_watch import QuorumWatch

        def has_leader() -> bool:
            return broker.quorum.leader_id >= 0

        watch = QuorumWatch(self.roles, broker.to_controllers, broker.cluster_id, has_leader)
        stack.push_async_callback(_ended, asyncio.create_task(watch.run()))

    async def _cluster_id(self, broker: Broker, listeners: Listeners) -> str:
        """The cluster id, stored in the data directory; empty for a directory of an older release."""
        disk, roles = broker.disk, self.roles
        known = self.settings.text("cluster.id") or disk.identity.cluster_id
        if not known and roles.has_other_controllers:
            if any(roles.protocols[each.name].uses_sasl for each in roles.controller_listeners):
                raise BadSettings(
                    "controllers with SASL do not report their cluster id before authentication: set "
                    "cluster.id, or format the data directory (runnel storage format)"
                )
            from runnel.server.greeting import Greeting
            from runnel.server.membership import ClusterIdSearch

            # Other voters ask this node as well.
            greeting = Greeting()
            listeners.serve(greeting)
            listeners.accept(roles.controller_listeners)
            known = await ClusterIdSearch(roles, broker.to_controllers, broker.entropy).find()
            disk.identify(known, roles.node_id)
            greeting.cluster_id = known
        if not known and METADATA_PARTITION in disk.known_logs():
            return ""
        known = known or id_text(new_id(broker.entropy))
        disk.identify(known, roles.node_id)
        return known

    def _prepare_directory(self, broker: Broker) -> None:
        """Read what the directory was formatted with; a controller that names no other is formatted here."""
        roles, disk = self.roles, broker.disk
        is_founding = METADATA_PARTITION not in disk.known_logs()
        if os.path.exists(os.path.join(self.data_dir, "bootstrap.checkpoint")):
            from runnel.server.storage import read_bootstrap

            broker.formatted = tuple(read_bootstrap(OsFiles(), self.data_dir) or ())
        if is_founding and not roles.is_alone and not roles.voters and not roles.has_other_controllers:
            from runnel.server.storage import standalone, write_voters

            voters = standalone(roles.node_id, disk.directory_id(), broker.controller_endpoints)
            write_voters(OsFiles(), self.data_dir, voters, broker.clock.now_ms())

    def _check_directory(self) -> None:
        """Refuse the directory of another node or cluster before anything in it is changed."""
        if (warning := open_folder(self.data_dir)) is not None:
            log.warning("%s", warning)
        identity = read_identity(OsFiles(), self.data_dir)
        if identity is not None:
            cluster_id = self.settings.text("cluster.id") or ""
            check_identity(identity, self.data_dir, cluster_id, self.roles.node_id)

    async def _keyring(self) -> "Keyring":
        from runnel.server.master_keys import new_keyring, read_master_keys

        keys = await asyncio.to_thread(read_master_keys, self.settings)
        return new_keyring(keys, OsFiles(), self.data_dir)

    async def _refresh_master_keys(self, disk: DataDirectory) -> None:
        """Read the master keys periodically, as they may have been rotated."""
        from runnel.server.master_keys import read_master_keys

        interval_ms = self.settings.int(MASTER_KEY_REFRESH_MS)
        while interval_ms:
            await asyncio.sleep(interval_ms / 1000)
            try:
                keys = await asyncio.to_thread(read_master_keys, self.settings)
                if disk.change_master_keys(keys):
                    log.warning("the master keys have changed")
            except (BadSettings, BadDirectory) as error:
                log.error(
                    "the master keys could not be changed, and the previous ones stay in use: %s", error
                )

    def _open_disk(
        self, stack: AsyncExitStack, clock: SystemClock, entropy: SystemEntropy, keyring: "Keyring | None"
    ) -> DataDirectory:
        settings = self.settings
        # Cleaning a large log takes minutes: a separate thread keeps checkpoints and deletions unblocked.
        cleaning = LoopWorkers(1, "cleaner")
        stack.callback(cleaning.close)
        self._workers = {
            "write": LoopWorkers(WRITE_THREADS, "write"),
            "sync": LoopWorkers(SYNC_THREADS, "sync"),
            "upkeep": LoopWorkers(1, "upkeep"),
            "read": LoopWorkers(READ_THREADS, "read"),
            "cleaner": cleaning,
        }
        self._cleaner = Cleaner(cleaning, report=log.warning, is_on=settings.bool("log.cleaner.enable"))
        self._change_cleaner(self._cleaner)
        disk = DataDirectory(
            self.data_dir,
            files=OsFiles(),
            clock=clock,
            entropy=entropy,
            write_workers=self._workers["write"],
            sync_workers=self._workers["sync"],
            upkeep_workers=self._workers["upkeep"],
            read_workers=self._workers["read"],
            cleaner=self._cleaner,
            intervals=UpkeepIntervals(
                retention_interval_ms=settings.int("log.retention.check.interval.ms"),
                recovery_points_interval_ms=settings.int("log.flush.offset.checkpoint.interval.ms"),
                log_starts_interval_ms=settings.int("log.flush.start.offset.checkpoint.interval.ms"),
            ),
            keyring=keyring,
        )
        stack.callback(disk.close)
        return disk

    def _limits(self) -> ListenerLimits:
        settings = self.settings
        queued_bytes_max = settings.int("queued.max.request.bytes")
        return ListenerLimits(
            connections_max=settings.int("max.connections"),
            connections_per_host_max=settings.int("max.connections.per.ip"),
            connections_of_host_max=parse_address_counts(
                settings.text("max.connections.per.ip.overrides") or ""
            ),
            connections_per_second_max=settings.int("max.connection.creation.rate"),
            idle_max_ms=settings.int("connections.max.idle.ms"),
            request_bytes_max=settings.int("socket.request.max.bytes"),
            receive_memory_bytes_max=queued_bytes_max if queued_bytes_max > 0 else RECEIVE_MEMORY_BYTES_MAX,
            send_buffer_bytes=settings.int("socket.send.buffer.bytes"),
            receive_buffer_bytes=settings.int("socket.receive.buffer.bytes"),
            backlog=settings.int("socket.listen.backlog.size"),
        )

    def _settings_changed(self, names: frozenset[str]) -> None:
        if self._listeners is not None:
            self._listeners.change(self._limits())
        if self._cleaner is not None:
            self._change_cleaner(self._cleaner)
        if self._tls is not None and self._tls.concerns(names):
            reload = asyncio.get_running_loop().create_task(self._tls.reload())
            self._tls_reloads.add(reload)
            reload.add_done_callback(self._tls_reloads.discard)

    def _change_cleaner(self, cleaner: Cleaner) -> None:
        cleaner.change(
            key_memory_bytes=self.settings.int("log.cleaner.dedupe.buffer.size"),
            backoff_ms=self.settings.int("log.cleaner.backoff.ms"),
        )

    async def stop(self) -> None:
        """Complete requests in flight, make everything durable, release the data directory."""
        await self._stack.aclose()

    async def disconnect(self) -> None:
        """Close all connections at once, as if the process was killed. The event loop must be closed next."""
        self._stack.pop_all()
        for end in self._abrupt_ends:
            end()
        # Transports are closed by the event loop.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def abandon(self) -> None:
        """Release the data directory without a clean shutdown; for a node whose event loop is closed."""
        if self._disk is not None:
            self._disk.abandon()

    async def __aenter__(self) -> "Node":
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()


def _needs_keyring(settings: Settings) -> bool:
    """Does this node have master keys? Raises BadSettings if it needs some, or has two sources."""
    file, command = settings.text(MASTER_KEY_FILE), settings.text(MASTER_KEY_COMMAND)
    if file and command:
        raise BadSettings(f"{MASTER_KEY_FILE} and {MASTER_KEY_COMMAND} are both set: remove one")
    if not file and not command and settings.bool("log.encryption.enable"):
        raise BadSettings(
            f"log.encryption.enable is set without a master key: set {MASTER_KEY_FILE} or "
            f"{MASTER_KEY_COMMAND}"
        )
    return bool(file or command)


async def _maintain(disk: DataDirectory, clock: SystemClock) -> None:
    while True:
        await asyncio.sleep(UPKEEP_INTERVAL_MS / 1000)
        try:
            disk.upkeep(clock.now_ms())
        except Exception:
            # A failed round must not end retention and checkpoints for good.
            log.exception("maintenance of the data directory failed")


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
