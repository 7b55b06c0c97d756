"""Metrics of the process, its event loop, disk and network."""

import time
from collections.abc import Callable, Iterator, Mapping

from runnel.disk.data_directory import DataDirectory
from runnel.disk.workers import LoopWorkers
from runnel.model.pauses import BUCKETS, FIRST_BOUND_US, LoopPauses
from runnel.observe.metrics import Distribution, Family, one
from runnel.server.host_facts import HostFacts
from runnel.server.listeners import Listeners

_PAUSE_BOUNDS = tuple((FIRST_BOUND_US << bucket) / 1_000_000 for bucket in range(BUCKETS - 1))


class NodeMetrics:
    """What the broker itself does not know."""

    def __init__(
        self,
        host: HostFacts,
        pauses: LoopPauses,
        disk: DataDirectory,
        workers: Mapping[str, LoopWorkers],
        listeners: Listeners,
        certificates: Callable[[], Mapping[str, int]],
    ) -> None:
        """`certificates` returns when those of listeners expire, in seconds since 1970."""
        self._host = host
        self._pauses = pauses
        self._disk = disk
        self._workers = workers
        self._listeners = listeners
        self._certificates = certificates
        self._started_s = time.time() - time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID)

    def __call__(self) -> Iterator[Family]:
        yield from self._process()
        yield from self._loop()
        yield from self._storage()
        yield from self._network()

    def _process(self) -> Iterator[Family]:
        facts = self._host.facts
        yield one("process_open_fds", "gauge", "Open file descriptors.", facts.open_files)
        yield one("process_max_fds", "gauge", "Limit of open file descriptors.", facts.open_files_max)
        yield one("process_resident_memory_bytes", "gauge", "Resident memory.", facts.resident_bytes)
        yield one("process_virtual_memory_bytes", "gauge", "Virtual memory.", facts.virtual_bytes)
        yield one("process_cpu_seconds_total", "counter", "CPU time, user and system.", facts.cpu_seconds)
        yield one("process_start_time_seconds", "gauge", "Start of the process.", self._started_s)
        yield one("process_threads", "gauge", "Threads of the process.", facts.threads)

    def _loop(self) -> Iterator[Family]:
        pauses = self._pauses
        yield one(
            "runnel_loop_delay_seconds",
            "histogram",
            "Time that a request waits for the event loop, sampled 50 times a second.",
            Distribution(_PAUSE_BOUNDS, pauses.counts, pauses.seconds),
        )
        yield one(
            "runnel_loop_delay_max_seconds",
            "gauge",
            "Longest of these since the start.",
            pauses.longest_us / 1_000_000,
        )

    def _storage(self) -> Iterator[Family]:
        facts, disk = self._host.facts, self._disk
        failure = self._host.disk_failure
        if facts.disk_total_bytes:
            yield one(
                "runnel_disk_total_bytes",
                "gauge",
                "Size of the volume of the data directory.",
                facts.disk_total_bytes,
            )
            yield one("runnel_disk_free_bytes", "gauge", "Free space of that volume.", facts.disk_free_bytes)
        yield one(
            "kafka_log_logmanager_offlinelogdirectorycount",
            "gauge",
            "1 if the data directory cannot be written.",
            failure is not None,
        )
        yield one(
            "runnel_fsync_seconds",
            "histogram",
            "Duration of the fdatasync calls for logs.",
            disk.sync_times.distribution(),
        )
        yield one("runnel_fsync_failures_total", "counter", "Syncs of logs that failed.", disk.sync_failures)
        yield Family(
            "runnel_worker_queue",
            "gauge",
            "Work of a pool of threads that is queued or running.",
            [((("pool", name),), workers.under_way) for name, workers in self._workers.items()],
        )

    def _network(self) -> Iterator[Family]:
        yield Family(
            "kafka_server_socket_server_metrics_connection_count",
            "gauge",
            "Connections of a listener.",
            [((("listener", name),), count) for name, count in self._listeners.connection_counts().items()],
        )
        yield one(
            "runnel_receive_memory_bytes",
            "gauge",
            "Memory of requests that are being received.",
            self._listeners.receive_memory_bytes,
        )
        certificates = self._certificates()
        if certificates:
            yield Family(
                "runnel_certificate_expiry_timestamp_seconds",
                "gauge",
                "When the certificate of a listener expires, in seconds since 1970.",
                [((("listener", name),), expires) for name, expires in certificates.items()],
            )
