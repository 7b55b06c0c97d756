"""The process of `runnel serve`: its tuning, which is not applied to embedded brokers, and its supervisor."""

import gc
import resource

SUPERVISOR_FD = "RUNNEL_SUPERVISOR_FD"
"""The environment variable with a descriptor that is closed when the supervisor of this process ends."""

READY_PREFIX = "listening on "
"""A node prints this and its address when it serves."""

FULL = 2
"""The generation of a full collection."""


def raise_descriptor_limit() -> None:
    """Raise RLIMIT_NOFILE to the hard limit: connections and open segments each use a descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def bound_garbage_collection() -> None:
    """Keep full collections short: each examines only objects created since the previous one.

    A partition is about fifty objects and a full collection takes half a microsecond for each: 10,000
    partitions paused the event loop for 270 ms. What survives a full collection is excluded from the next
    ones, beginning with what the start created. It is freed when its reference count reaches zero, but not
    if it ends in a cycle: long-lived objects break theirs when they end (connections, removed logs).
    """
    gc.set_threshold(700, 10, 5)
    gc.callbacks.append(_freeze_survivors)
    gc.collect()


def _freeze_survivors(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == FULL:
        gc.freeze()
