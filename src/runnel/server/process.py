"""Process-wide tuning of `runnel serve`; not applied to embedded brokers."""

import gc
import resource


def raise_descriptor_limit() -> None:
    """Raise RLIMIT_NOFILE to the hard limit: connections and open segments each use a descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def freeze_startup_objects() -> None:
    """Exclude the objects created by the start from garbage collection (100,000 objects cost 4 ms)."""
    gc.collect()
    gc.freeze()
