"""The machinery behind the handlers: turn, partitions, shard drivers, waiting requests, dispatch."""
